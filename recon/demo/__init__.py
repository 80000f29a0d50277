"""`recon demo`: a real broker, two real streams, faults made on purpose, and the audit that finds them."""
