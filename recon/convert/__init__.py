"""Between recon.yml and the files of other tools: dbt's schema.yml in, a Great Expectations suite out."""
