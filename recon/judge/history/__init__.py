"""What happened to a sink, as its own log or record tells: recon's writes, those of others, and what was taken away."""
