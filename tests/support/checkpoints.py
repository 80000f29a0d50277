"""How the tests' own session writes checkpoints."""

from __future__ import annotations

from importlib.metadata import version

# Spark 4.1 moved it.
_PACKAGE = "org.apache.spark.sql.execution.streaming" + (
    "" if version("pyspark").startswith(("3.", "4.0.")) else ".checkpointing"
)
# By default Hadoop starts `readlink` twice and `chmod` once for each file of a checkpoint on a local disk, which is a
# third of a small micro-batch's CPU. The other manager, which Spark has for object stores, starts none. Sessions that
# tests start in processes of their own (demo, cluster, Connect, the crash kit in `make soak`) have the default.
CHECKPOINTS = {"spark.sql.streaming.checkpointFileManagerClass": f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"}
