"""`recon demo`: a real broker, two real streams, faults made on purpose, and an audit that must find them.

Of the demo, `run` is the sequence; `events` writes the records, `crash` kills a job, `expected` compares the audit with
what was done, `folder` is the demo's folder, `templates` are its recon.yml and jobs. `trial` is `recon try`: an audit
of recorded streams (recording.zip), whose witnesses `recorded` reads. Imported by the command line only.
"""
