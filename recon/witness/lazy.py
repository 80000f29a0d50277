"""confluent-kafka, imported when a name of it is first used; apart from `base.lazy`, which rooms without Kafka use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recon.base.lazy import LazyModule

if TYPE_CHECKING:
    import confluent_kafka as ck

    ck_admin: Any  # its stub exports too little for a strict type check
else:
    ck, ck_admin = LazyModule("confluent_kafka"), LazyModule("confluent_kafka.admin")

__all__ = ["ck", "ck_admin"]
