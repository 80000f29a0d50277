"""What the tests of your own check or sink need. Public: names here are not renamed without notice.

`checks` evaluates a check on a DataFrame or on witnesses, and `evidence` makes witnesses. `sinks` makes a micro-batch
and tests the contract of every sink. `own` removes what a test registered or installed. recon's own tests and other
packages may import this room; no other room does.
"""

from recon.testing.checks import evaluate
from recon.testing.evidence import Entry, checkpoint, kafka, ledger, planned, witnesses
from recon.testing.own import only_built_in
from recon.testing.sinks import MicroBatch, micro_batch, verify_repair, verify_sink

__all__ = [
    "Entry",
    "MicroBatch",
    "checkpoint",
    "evaluate",
    "kafka",
    "ledger",
    "micro_batch",
    "only_built_in",
    "planned",
    "verify_repair",
    "verify_sink",
    "witnesses",
]
