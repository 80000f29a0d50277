"""The connection to a broker ends where the last reference to it does."""

from __future__ import annotations

import gc
import weakref

from recon.witness.kafka_admin import KafkaAdmin


def test_a_connection_ends_without_the_garbage_collector() -> None:
    """librdkafka's threads would else be ended in whichever thread the collector runs, perhaps one of their own."""
    gc.disable()
    try:
        admin = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"})
        ended = weakref.ref(admin)
        del admin
        assert ended() is None
    finally:
        gc.enable()
