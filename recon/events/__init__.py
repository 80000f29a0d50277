"""What recon tells others: one model of events, and what takes them (alerts, exporters).

`model` has the events, `consumer` what takes them, `dispatcher` hands them over so that nothing waits for it,
`emitter` is what the hook, audits and the listener call, `registry` makes the consumers that recon.yml names. A
consumer that fails or hangs changes nothing but a note. Imports no room above it (`hook`, `audit`, `streams`), and no
Spark.
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
