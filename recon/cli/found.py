"""recon init --from: a recon.yml of a stream that runs, from its checkpoint, its table and Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from recon.base.clock import utc_now
from recon.base.errors import ReconError
from recon.base.text import plural, short_path

if TYPE_CHECKING:
    from recon.write.observer.found import FoundStream

_KAFKA_S = 5.0


def found_yaml(found: FoundStream, *, project: str, pipeline: str, folder: Path, kafka: str) -> str:
    """The text of recon.yml; paths are relative to its `folder` where they are below it."""
    values = {
        "project": project,
        "pipeline": pipeline,
        "checkpoint": _place(found.checkpoint, folder),
        "target": _place(found.target, folder),
        "ledger": "recon",
        "query": found.query_id,
    }
    quoted = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    template = Template((resources.files("recon.cli") / "templates" / "found.yml").read_text(encoding="utf-8"))
    return template.substitute(
        quoted | {"query": found.query_id},
        day=f"{utc_now():%Y-%m-%d}",
        kafka="" if found.files is not None else f"kafka:\n  bootstrap.servers: {_broker(kafka)}\n",
        reads="".join(_reads(found, folder)),
        lag="kafka_end_offsets" if found.files is None else "source_files",
        write="recon" if not found.observed else "native" if found.native else "foreach_batch",
        why=_why(found),
        rows="".join(_rows(found)),
        app="".join(_app(found)),
        source="".join(_source(found)),
        columns="".join(_columns(found)),
    )


def _broker(kafka: str) -> str:
    return f"\"{{{{ env_var('KAFKA_BOOTSTRAP', {_single_quoted(kafka)}) }}}}\""


def _reads(found: FoundStream, folder: Path) -> Iterator[str]:
    if found.files is None:
        yield f"      topics: {json.dumps(sorted(found.topics), ensure_ascii=False)}\n"
        yield "      # The stream's kafka.isolation.level; the checkpoint does not say it: this is Spark's default.\n"
        yield "      isolation_level: read_uncommitted\n"
        return
    place = json.dumps(_place(found.files, folder), ensure_ascii=False)
    yield f"      files: {place}   # as the checkpoint's log of files shows\n"
    yield f"      format: {found.format or 'parquet   # names of files do not say it'}\n"
    yield "      # Options of the query that decide which files it reads, such as maxFileAge, stand in no checkpoint.\n"
    yield "      # options: {maxFileAge: 7d}\n"


def _why(found: FoundStream) -> str:
    if found.stamped:
        return "recon's hook writes the table"
    if found.app_id is not None or found.by_rows:
        return "a function of its own writes the table, and recon observes it"
    if found.native:
        return "Spark's own sink writes the table, and recon observes it"
    return "the table is written by foreachBatch: let recon write it, as docs/index.md shows"


def _app(found: FoundStream) -> Iterator[str]:
    if found.observed and found.app_id is not None:
        yield f"        txn_app_id: {json.dumps(found.app_id)}   # of its commits, whose txnVersion is the batch_id\n"


def _rows(found: FoundStream) -> Iterator[str]:
    if not found.observed:
        return
    read = "offsets" if found.files is None else "its files"
    if found.as_many:
        yield f"    # Each micro-batch that was looked at has as many rows as {read}: the query filters none.\n"
        yield "    rows: {filters: false}\n"
    else:
        yield f"    # Say whether the query drops records: without it fewer rows than {read} cannot be proved.\n"
        yield "    # rows: {filters: false}\n"


def _source(found: FoundStream) -> Iterator[str]:
    names = found.source_columns
    if not found.observed or (names is None and found.files is not None):
        return
    if names is None:
        yield "        # Rows do not say which record they were made of: keep Kafka's partition and offset in columns\n"
        yield "        # of the table, and name them here, to see which offsets have a row.\n"
        yield "        # source_columns: {partition: kafka_partition, offset: kafka_offset}\n"
        return
    topic = f"topic: {json.dumps(names.topic)}, " if names.topic is not None else ""
    columns = f"partition: {json.dumps(names.partition)}, offset: {json.dumps(names.offset)}"
    if found.doubt:
        yield f"        # By their names, columns say which record a row was made of, and {found.doubt}.\n"
        yield "        # Name them here if they do, to see which offsets have a row.\n"
        yield f"        # source_columns: {{{topic}{columns}}}\n"
    else:
        yield f"        source_columns: {{{topic}{columns}}}   # as the newest rows show\n"


def _columns(found: FoundStream) -> Iterator[str]:
    if found.keys:
        yield "        columns:\n"
    for key in found.keys:
        yield f"          - name: {json.dumps(key, ensure_ascii=False)}   # by its name a key\n"
        yield "            data_tests: [{unique: {config: {severity: warn}}}, {not_null: {config: {severity: warn}}}]\n"


def _single_quoted(text: str) -> str:
    """A text for Jinja within YAML's double quotes."""
    return "'" + text.replace("\\", "").replace("'", "").replace('"', "") + "'"


def _place(location: str, folder: Path) -> str:
    """A local path relative to the folder where it is below it, else as it is."""
    path = Path(location)
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else location


def said(found: FoundStream, kafka: str) -> Iterator[str]:
    """What was found, a line each."""
    whole = f"; the checkpoint has micro-batches {found.batches[0]} to {found.batches[1]}" if found.batches else ""
    reads = found.files if found.files is not None else ", ".join(sorted(found.topics))
    yield f"Query {found.query_id} reads {reads}{whole}."
    yield f"It writes {short_path(Path(found.target)) if '://' not in found.target else found.target} ({_why(found)})."
    if found.files is None:
        yield from _kafka_said(found, kafka)


def _kafka_said(found: FoundStream, kafka: str) -> Iterator[str]:
    """How far behind Kafka's end the query is, or that the broker did not answer."""
    from recon.witness import kafka as broker

    conf = {"bootstrap.servers": kafka}
    try:
        witness = broker.read(conf, sorted(found.topics), isolation_level="read_uncommitted", timeout_s=_KAFKA_S)
    except ReconError as error:
        yield f"Kafka did not answer, so topics were not looked at: {error}"
        return
    for name, ends in sorted(found.topics.items()):
        topic = witness.topics[name]
        if not topic.exists:
            yield f"Topic {name} is not there at {kafka}: name the broker that the query reads with --kafka."
            continue
        waiting = sum(max(p.log_end - ends.get(number, 0), 0) for number, p in topic.partitions.items())
        partitions = plural(len(topic.partitions), "partition")
        yield f"Topic {name}: {partitions}, {plural(waiting, 'offset')} wait to be read."
