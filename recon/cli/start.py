"""recon try, recon init, recon demo, recon local: first steps."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from recon.base.errors import ConfigError
from recon.base.text import short_path
from recon.cli.shared import Session, called, writing

BrokerDirOption = Annotated[Path, typer.Option("--dir", help="The broker's folder: data, logs, port.")]
_BROKER_DIR = Path("local-kafka")


def init(
    session: Session,
    directory: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Default: the current folder.")] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Name of the pipeline.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Kafka topic it reads; default: orders.")] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", help="Its checkpointLocation.")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The Delta table it writes: path or URI.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="Checkpoint of a query that runs: recon.yml is made of what it shows.")
    ] = None,
    kafka: Annotated[str, typer.Option("--kafka", help="With --from: the broker, HOST:PORT.")] = "localhost:9092",
) -> None:
    """Write a commented recon.yml for your own pipeline.

    With --from, of a query that runs: its checkpoint says what it reads, its table what it writes. An existing file is
    never changed.
    """
    from recon.project import FILE_NAME

    folder = (directory or session.project_dir or Path()).absolute()
    file = folder / FILE_NAME
    if file.exists():
        raise ConfigError(f"{file} exists already and was not changed; choose another folder, or remove it first")
    if from_ is not None:
        if topic is not None or checkpoint is not None:
            raise ConfigError("--from names the checkpoint, which says the topics; leave out --topic and --checkpoint")
        _init_from(file, from_, target, pipeline, kafka)
        return
    topic = topic or "orders"
    name = pipeline or _as_name(topic)
    values = {
        "project": _as_name(folder.name),
        "pipeline": name,
        "topic": topic,
        "checkpoint": checkpoint or f"checkpoints/{name}",
        "target": target or f"lake/{name}",
    }
    for option, value in values.items():
        if re.search(r"\{[{%#]", value):
            raise ConfigError(f"--{option} '{value}' looks like Jinja; write that into {FILE_NAME} by hand")
    template = Template((resources.files("recon.cli") / "templates" / FILE_NAME).read_text(encoding="utf-8"))
    _write(file, template.substitute({k: json.dumps(v, ensure_ascii=False) for k, v in values.items()}))
    typer.echo("Next: read it, then 'recon debug' shows what can be reached and 'recon list' which checks would run.")


def _init_from(file: Path, checkpoint: str, target: str | None, pipeline: str | None, kafka: str) -> None:
    """Writes the recon.yml of a stream that runs, and says what was found."""
    from recon.cli.found import found_yaml, said
    from recon.write.observer.found import found_stream

    folder = file.parent
    found = found_stream(_located(checkpoint), None if target is None else _located(target), {})
    name = _as_name(pipeline or found.target.rstrip("/").rpartition("/")[2])
    text = found_yaml(found, project=_as_name(folder.name), pipeline=name, folder=folder, kafka=kafka)
    for line in said(found, kafka):
        typer.echo(line)
    _write(file, text)
    if found.observed:
        typer.echo("Next: 'recon audit' enters what the query wrote, and judges it; nothing of the query changes.")
    else:
        typer.echo("Next: read it, then let the query write by recon.foreach_batch, with the same checkpoint.")


def _located(location: str) -> str:
    """A path or URI of the command line; paths are relative to the current folder."""
    return location if "://" in location else str(Path(location).absolute())


def _write(file: Path, text: str) -> None:
    """Writes a new recon.yml, unless what it says cannot be used."""
    from recon.project import load

    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    try:
        load(file)
    except ConfigError:
        file.unlink()  # an option's value made the file unusable
        raise
    typer.echo(f"Wrote {file}")


def try_recording(
    session: Session,
    directory: Annotated[Path, typer.Option("--dir", help="Folder for the recording and its report; it stays.")] = Path(
        "recon-try"
    ),
) -> None:
    """Audit three recorded streams: a first verdict, without Java.

    Real streams from Kafka to Delta tables, recorded with their faults: records that Kafka deleted unread, a
    micro-batch that was written twice, a lost checkpoint. Starts no JVM and opens no connection. Exit 0 when the audit
    ran.
    """
    from recon.local.demo.trial import audited, unpack
    from recon.reports import html, run_results
    from recon.reports.console import Console

    folder = directory.absolute()
    recorded_at = unpack(folder)
    typer.echo(f"Three streams, recorded on {recorded_at:%Y-%m-%d}, are in {short_path(folder)}. They are audited now:")
    typer.echo()
    with Console() as console:
        run = audited(folder, recorded_at, console.line)
        console.summary(run)
    page = folder / "target" / "report.html"
    with writing(page):
        run_results.write(run, page.with_name("run_results.json"))
        html.write(run, page)
    typer.echo()
    typer.echo("What to do next:")
    for command, purpose in (
        (f"{called('python')} -m webbrowser {page.as_uri()}", "the report"),
        (f"{called('recon')} runbook LOSS_RETENTION", "what a finding means, and what can still be saved"),
        (
            f"{called('recon')} init --topic orders --checkpoint checkpoints/orders --target lake/orders",
            "your own stream",
        ),
    ):
        typer.echo(f"  {command}    # {purpose}")


def demo(
    session: Session,
    directory: Annotated[Path, typer.Option("--dir", help="Folder for everything the demo makes; it stays.")] = Path(
        "demo-lake"
    ),
    keep_broker: Annotated[bool, typer.Option("--keep-broker", help="Leave the broker running.")] = False,
) -> None:
    """Run two real streams, make faults, audit and repair them.

    A real Kafka broker and Spark on this machine; the audits must find exactly the faults that were made.
    """
    from recon.local.demo.run import run

    raise typer.Exit(run(directory.absolute(), keep_broker))


def start_kafka(session: Session, directory: BrokerDirOption = _BROKER_DIR) -> None:
    """Start a broker that keeps running.

    Prints only its address on stdout.
    """
    from recon.local.kafka import start_detached

    broker = start_detached(directory)
    typer.echo(f"Kafka runs as process {broker.pid}; its log is {broker.log_file}", err=True)
    typer.echo(broker.bootstrap_servers)


def stop_kafka(session: Session, directory: BrokerDirOption = _BROKER_DIR) -> None:
    """Stop the broker that was started in this folder."""
    from recon.local.kafka import stop_detached

    stopped = stop_detached(directory)
    message = f"Stopped process {stopped.pid}." if stopped else f"No broker runs in {directory.absolute()}."
    typer.echo(message, err=True)


def _as_name(text: str) -> str:
    """A topic's or folder's name as a name for recon.yml."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_") or "recon"
