"""The rules of `recon advise`: pure functions from `Facts` to one `Advice`.

A new rule is a module of its name, its function in `RULES`, its test and its row in docs/advise.md.
"""

from __future__ import annotations

from collections.abc import Callable

from recon.write.streams.facts import Advice, Facts
from recon.write.streams.rules.deduplication import deduplication
from recon.write.streams.rules.fail_on_data_loss import fail_on_data_loss
from recon.write.streams.rules.max_offsets_per_trigger import max_offsets_per_trigger
from recon.write.streams.rules.partitions import partitions
from recon.write.streams.rules.state_store import state_store
from recon.write.streams.rules.trigger_interval import trigger_interval

RULES: tuple[Callable[[Facts], Advice], ...] = (
    max_offsets_per_trigger,
    trigger_interval,
    partitions,
    deduplication,
    fail_on_data_loss,
    state_store,
)
