"""What recon tells others: one model of events, and what takes them (alerts, exporters).

`model` has the events, `consumer` is what takes them, and `dispatcher` hands them over so that nothing waits for it.
`emitter` is what the hook, audits and the listener call; `registry` makes the consumers that recon.yml names. These are
in `alerts` and `exporters`. `errors` puts an error into an event without values of rows.

A consumer that fails or hangs changes nothing but a note. Imports no room above it (`write`, `audits`), and no Spark.
"""

from recon.events.consumer import Consumer
from recon.events.emitter import Emitter
from recon.events.model import (
    SCHEMA_VERSION,
    AuditFailed,
    AuditFinished,
    AuditStarted,
    Event,
    FindingChanged,
    IncidentChanged,
    MicroBatchFailed,
    MicroBatchWritten,
    PipelineAnswer,
    StreamProgressed,
    StreamResumed,
    StreamStalled,
    StreamStarted,
    StreamTerminated,
)

__all__ = [
    "SCHEMA_VERSION",
    "AuditFailed",
    "AuditFinished",
    "AuditStarted",
    "Consumer",
    "Emitter",
    "Event",
    "FindingChanged",
    "IncidentChanged",
    "MicroBatchFailed",
    "MicroBatchWritten",
    "PipelineAnswer",
    "StreamProgressed",
    "StreamResumed",
    "StreamStalled",
    "StreamStarted",
    "StreamTerminated",
]
