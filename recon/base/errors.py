"""The exceptions that recon raises, with one root.

A message names the thing, what was found, and the next step, in one sentence. Bad *data* is a
result, never an exception: an exception means that recon could not evaluate.
"""

from recon.base.credentials import without_credentials


class ReconError(Exception):
    """Root of recon's errors; the command line turns it into one line and exit code 2.

    A message shows no credential that a location holds.
    """

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class ConfigError(ReconError):
    """recon.yml, a command-line option or a check's arguments cannot be used."""


class EvidenceError(ReconError):
    """A witness (checkpoint, Delta log, Kafka, rows) cannot be read or contradicts its own format."""


class LedgerError(ReconError):
    """The ledger cannot be read or written."""


class UnreachedLedgerError(LedgerError):
    """A table of the ledger is not reached: this user may not read it, or its store does not answer."""


class SinkError(ReconError):
    """A sink write failed, was swallowed, or must not go on."""


class RefusedError(SinkError):
    """Another writer of the sink came first: nothing of the write is there, and its driver must look at the sink anew.

    `number` is that of the write; None where the sink numbers none.
    """

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number


class NewEpochError(SinkError):
    """The checkpoint starts a new epoch whose ranges overlap the ledger's end or leave a gap."""


class TableReplacedError(SinkError):
    """The sink's table is not the one that the ledger's entries were written into: it is gone, older, or another."""


class GateError(SinkError):
    """A post-batch check with `on_failure: stop` failed; the micro-batch is not committed."""
