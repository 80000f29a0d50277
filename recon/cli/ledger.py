"""recon ledger and recon offsets: shows, verifies and repairs the ledger, and prints where it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ConfigError, LedgerError
from recon.base.storage import write_private
from recon.base.text import short_path
from recon.cli.shared import (
    FromOption,
    OutputOption,
    PipelineOption,
    Session,
    SinkOption,
    ToOption,
    period,
    print_json,
    print_table,
    writing,
)
from recon.model.positions import offsets_in

if TYPE_CHECKING:
    from recon.write.ledger import Ledger
    from recon.write.ledger.heads.verifying import Compared

HeadsOption = Annotated[
    list[str] | None, typer.Option("--heads", help="Published heads: a folder or a file; repeatable.")
]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", help="A public key whose signatures are accepted; repeatable.")
]


def _existing(session: Session) -> Ledger:
    """The project's ledger.

    Raises:
        LedgerError: there is none yet.
    """
    from recon.write.ledger import open_ledger

    ledger = open_ledger(session.project())
    if not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}; the first micro-batch through recon's hook creates it, "
            "or 'recon ledger rebuild' from the sinks' own records"
        )
    return ledger


def offsets(
    session: Session,
    pipeline: Annotated[str, typer.Option("--pipeline", help="The pipeline to continue.")],
    sink: Annotated[str | None, typer.Option("--sink", help="One of its sinks; needed when it has several.")] = None,
) -> None:
    """Print the startingOffsets at which the ledger ends.

    Prints only JSON for Spark's Kafka source; a new checkpoint with it continues exactly there. Where the ledger has
    nothing of the pipeline, they are those at which its checkpoint ends, which prove nothing of the sink.
    """
    session.check_names(pipeline, sink)
    project = session.project()

    from recon.recovery.starting_offsets import starting_offsets

    typer.echo(starting_offsets(project, pipeline, sink))


def show(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many entries, the newest.")] = 50,
    output: OutputOption = "text",
) -> None:
    """Show the ledger's entries, oldest first."""
    start, end = period(from_, to)
    session.check_names(pipeline, sink)

    entries = _existing(session).entries(pipeline, sink, from_=start, to=end, limit=limit)
    if output == "json":
        print_json(entries)
    elif entries:
        headers = (
            "committed_at pipeline sink sequence epoch batch_id attempt status rows_written quarantined offsets "
            "version hash"
        )
        print_table(
            headers.split(),
            (
                (
                    e.committed_at.strftime("%Y-%m-%d %H:%M:%S"),
                    e.pipeline,
                    e.sink,
                    e.sequence,
                    e.epoch,
                    e.batch_id,
                    e.attempt,
                    e.status,
                    e.rows_written,
                    e.rows_quarantined,
                    offsets_in(e.offsets),
                    e.sink_version,
                    e.entry_hash[:12],
                )
                for e in entries
            ),
        )
    else:
        typer.echo("The ledger has no such entry.", err=True)


def verify(
    session: Session,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    heads: HeadsOption = None,
    key: KeyOption = None,
    output: OutputOption = "text",
) -> None:
    """Recompute every entry's hash and its link to the entry before.

    The commits of Delta sinks say which entries there must be. The states that audits left in the table `proof` are
    verified, too, and with --heads the ledger is compared with published heads, and these with each other. Exit 1
    when something is wrong or cannot be compared.
    """
    session.check_names(pipeline, sink)

    from recon.model import Level
    from recon.recovery.verify import verify as verified

    ledger, sentences = _existing(session), tuple[str, ...]()
    compared = None if heads is None else _compared(session, ledger, heads, key or [], pipeline, sink)
    findings = verified(session.project(), ledger, pipeline, sink)
    if compared is not None:
        findings, sentences = [*compared.findings, *findings], compared.sentences
    refuted = any(f.level is Level.FAIL for f in findings)
    failed = any(f.level in (Level.FAIL, Level.UNPROVED) for f in findings)
    if output == "json":
        print_json([f.as_dict() for f in findings])
    else:
        for finding in findings:
            typer.echo(f"{finding.code}  {finding.message}")
        for sentence in sentences:
            typer.echo(sentence)
        conclusion = "The ledger is intact: every hash and link is right."
        if failed:
            conclusion = "The ledger was changed or is damaged." if refuted else "Not everything could be compared."
        typer.echo(conclusion)
    raise typer.Exit(1 if failed else 0)


def _compared(
    session: Session, ledger: Ledger, heads: list[str], key: list[str], pipeline: str | None, sink: str | None
) -> Compared:
    from recon.write.ledger.heads import verifying
    from recon.write.ledger.heads.signing import public_keys

    project = session.project()
    published = verifying.published(heads, public_keys(project, key), project)
    compared = verifying.compare(project, ledger, published.documents, pipeline, sink)
    return replace(compared, findings=(*published.findings, *compared.findings))


def prove(
    session: Session,
    entry: Annotated[
        str | None, typer.Option("--entry", help="The entry: its sequence, or 8 or more digits of its hash.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="A published head: prove that the ledger continues it.")
    ] = None,
    pipeline: PipelineOption = None,
    sink: SinkOption = None,
    key: KeyOption = None,
    output: Annotated[Path | None, typer.Option("--output", help="The file to write.")] = None,
) -> None:
    """Write a proof for somebody who has a published head, and not the ledger.

    That an entry is among those that the newest signed head of its chain covers, or that this head continues an older
    one.
    """
    if (entry is None) == (since is None):
        raise ConfigError("give --entry, for the proof that an entry is there, or --since, that a head is continued")
    session.check_names(pipeline, sink)

    from recon.write.ledger.heads import proving, verifying
    from recon.write.ledger.heads.signing import public_keys

    project, ledger = session.project(), _existing(session)
    keys, chain = public_keys(project, key or []), _chain(session, pipeline, sink)
    if entry is not None:
        proof = proving.prove(project, ledger, keys, chain, entry)
    else:
        documents = verifying.read([str(since)], keys, project)
        old = [head for document in documents for head in document.heads if head.chain == chain]
        if not old:
            raise LedgerError(f"there is no head of {'.'.join(chain)} at {since}")
        proof = proving.prove_growth(project, ledger, keys, chain, old[0])
    name = f"proof-{'-'.join(chain)}-{proof['sequence'] if entry is not None else 'heads'}.json"
    file = (output or session.target(None) / name).absolute()
    with writing(file):
        write_private(file, proving.dump(proof))
    typer.echo(f"Proof: {short_path(file)}")


def _chain(session: Session, pipeline: str | None, sink: str | None) -> tuple[str, str]:
    """The chain that --pipeline and --sink name, or the only one.

    Raises:
        ConfigError: recon.yml has several.
    """
    from recon.write.ledger.heads.signing import chains_of

    chains = [
        names for names in chains_of(session.project()) if pipeline in (None, names[0]) and sink in (None, names[1])
    ]
    if len(chains) != 1:
        raise ConfigError(
            f"several chains may have it ({', '.join(map('.'.join, chains))}); give --pipeline and --sink"
        )
    return chains[0]


def print_key(session: Session) -> None:
    """Print the public key that verifies the project's signed heads.

    For --key, and for `public_keys` in recon.yml. It is no secret.
    """
    from recon.write.ledger.heads.signing import key_of

    key = key_of(session.project())
    if key is None:
        raise ConfigError("recon.yml has no key that signs heads; name one below `heads:` by key or key_file")
    typer.echo(str(key.public))


def rebuild(
    session: Session, pipeline: PipelineOption = None, sink: SinkOption = None, output: OutputOption = "text"
) -> None:
    """Restore missing entries from what the sinks themselves recorded.

    From the userMetadata of Delta commits, and from the records of other sinks.
    """
    session.check_names(pipeline, sink)

    from recon.recovery.rebuild import rebuild as restore
    from recon.write.ledger import open_ledger

    project = session.project()
    restored, ledger = restore(project, pipeline, sink), open_ledger(project)
    if not restored and not ledger.exists():
        raise LedgerError(
            f"there is no ledger at {ledger.location}, and no sink has a record of recon's writes to make it from; "
            "has the hook ever written?"
        )
    if output == "json":
        print_json(restored)
        return
    for entry in restored:
        typer.echo(
            f"restored {entry.pipeline}.{entry.sink} epoch {entry.epoch} batch {entry.batch_id} "
            f"from version {entry.sink_version} ({entry.rows_written} rows)"
        )
    typer.echo(f"{len(restored)} restored." if restored else "Nothing was missing.")


def compact(session: Session, output: OutputOption = "text") -> None:
    """Merge the small files of the ledger's tables."""
    metrics = _existing(session).compact()
    if output == "json":
        print_json(metrics)
        return
    for table, counters in metrics.items():
        counts = ", ".join(f"{k} {v}" for k, v in counters.items() if isinstance(v, (int, str)))
        typer.echo(f"{table}: {counts}")
