"""The sink of kind `kafka`: a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import override

from recon.project.fields import Texts
from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink
from recon.project.sinks.repairs import READ_ONCE_MORE, RepairAbility, without_record


class KafkaSink(Sink):
    """Writes rows as records of the topic `target`.

    `mode`: `transactional` writes a micro-batch's rows and markers of them in Kafka transactions; `at_least_once`
    writes plain records.
    `value_format`: `columns` takes the columns `key`, `value`, `headers` and `partition`, as Spark's own sink does;
    `json` writes all columns but recon's as one JSON object.
    `key`: the column that becomes the record's key; `key` by default, if there is one.
    `marker_topic`: a compacted topic for the markers, made if absent; `marker_replication_factor`: its replicas, the
    broker's default when None.
    `tasks`: how many tasks write at once, 8 by default; never more than the micro-batch has source partitions.
    `kafka`: librdkafka settings for this sink, over the project's.
    `options`: passed to Spark's Kafka reader where checks read the topic back.
    """

    writer = "recon.write.sinks.kafka.writer:KafkaWriter"
    repairs = "recon.write.sinks.kafka.repair:KafkaStore"
    variants = ({}, {"mode": "at_least_once"})
    in_files = False

    kind: Literal["kafka"]
    mode: Literal["transactional", "at_least_once"] = "transactional"
    value_format: Literal["columns", "json"] = "columns"
    key: str | None = None
    marker_topic: str = "_recon_markers"
    marker_replication_factor: int | None = Field(default=None, ge=1)
    tasks: int | None = Field(default=None, ge=1, le=1000)
    kafka: Texts = Field(default_factory=dict, repr=False)
    options: Texts = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _claims_what_it_can(self) -> KafkaSink:
        if self.mode == "transactional" and "mode" in self.model_fields_set and not self.stamp_source_offsets:
            raise BadValue(
                f"sink '{self.name}' cannot be exactly-once with stamp_source_offsets: false: without source "
                "coordinates nothing says which task had which row; stamp them, or set mode: at_least_once",
                "mode",
                whole=True,
            )
        if self.target == self.marker_topic:
            raise BadValue("is the sink's target, too; give the markers a topic of their own", "marker_topic")
        weaker = {"enable.idempotence": ("false",), "acks": ("0", "1"), "request.required.acks": ("0", "1")}
        for name, refused in weaker.items():
            if self.kafka.get(name) in refused:
                raise BadValue(f"cannot be {self.kafka[name]}: records could be lost or doubled", "kafka", name)
        for name in ("transactional.id", "isolation.level"):
            if name in self.kafka:
                raise BadValue("is set by recon; leave it out", "kafka", name)
        return self

    @override
    def client_settings(self, kafka: Mapping[str, str]) -> dict[str, str]:
        return {**kafka, **self.kafka}

    @property
    def transactional(self) -> bool:
        """Whether rows are written in transactions with markers."""
        return self.mode == "transactional" and self.stamp_source_offsets

    @property
    @override
    def promise(self) -> Guarantee:
        if not self.transactional:
            return Guarantee(
                label="at-least-once",
                how="an idempotent producer with acks=all; a retried micro-batch is written again",
                needs="consumers that tolerate duplicates",
            )
        return Guarantee(
            label="exactly-once",
            how="a task's records and its marker are one transaction; a retry skips tasks whose marker is there",
            needs="a compacted marker topic, consumers that read committed records only, a transform that keeps the "
            "same rows when it runs again, and recon and confluent-kafka on the executors",
        )

    @property
    @override
    def repair_ability(self) -> RepairAbility:
        if not self.transactional:
            plain = self.mode == "at_least_once"
            return without_record("mode: at_least_once" if plain else "stamp_source_offsets: false")
        return RepairAbility(
            only_unread="retention takes records out of a topic, so which of these offsets was lost is not known: "
            f"{READ_ONCE_MORE}; consumers then see those that are there a second time",
            no_removal="a record of a topic cannot be taken back, so a repair removes none: let consumers keep one of "
            "each source offset, which is in its headers, then accept the finding",
            reads="; consumers get them behind records of later offsets",
        )
