"""`recon demo`: a real broker, two real streams, faults made on purpose, and an audit that must find them.

The demo: `run` is the sequence, `events` writes the records, `crash` kills a job, `shell` runs recon's commands.
`expected` has the results that its audits must have; `folder` is the demo's folder, `templates` its recon.yml and jobs.

`trial` is `recon try`: an audit of recorded streams (recording.zip), whose witnesses `recorded` reads. Imported by the
command line only.
"""
