"""What every room may use and what knows none of them: errors, files, the clock, credentials, small texts.

`errors` has recon's exceptions; `storage` reads and writes files on a disk or an object store. `clock` is the time that
recon reads, `instants` parses times that people give, `limits` bounds the time of calls. `credentials` masks what no
message may show, `decision` says who decided and why. `text` has parts of sentences, `counts` adds counts that may not
be known, `trend` is whether a figure grows. `lazy` imports heavy libraries when first used, `requirements` reads the
versions that recon needs.
"""
