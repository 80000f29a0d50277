"""What recon needs of Spark itself: the session, its errors in one sentence, columns, observed counts."""
