"""File sinks: a folder per micro-batch, its manifest last; or Spark's plain append.

`replace` and `append` are the two writers, `reading` opens the files that manifests name; `repair` is for `recon
repair`. A file that no manifest names is not part of the data: nothing here may read one.
"""
