"""recon compliance verify: whether a report or a pack is as recon wrote it, and whether its numbers are right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recon.base.errors import ConfigError
from recon.base.text import plural, short_path, some
from recon.cli.audit import TemplatesOption, templates_folder
from recon.cli.ledger import KeyOption
from recon.cli.shared import OutputOption, Session, print_json
from recon.reports.words import number, one_line, period

if TYPE_CHECKING:
    from recon.audits.verify_pack import PackVerification, VerifiedChain
    from recon.write.ledger.heads.keys import PublicKey


def verify(
    session: Session,
    file: Annotated[Path, typer.Argument(help="A report (HTML, PDF or JSON), or a pack.")],
    templates: TemplatesOption = None,
    key: KeyOption = None,
    output: OutputOption = "text",
) -> None:
    """Derive every number of a report again, or verify an auditor's pack.

    A report: from ledger and proof, for the report's period and as of its own time; what came later is listed. What an
    HTML page or a PDF shows is compared with the data in it. Exit 0 when all is the same, 1 when something differs or
    could not be compared. Exit 2 when the file is no compliance report, truncated, edited or of a newer version.

    A pack: by the keys of --key, or those of recon.yml; the ledger is not read. Exit 0 when all is right, 1 when
    something is wrong or could not be proved, 2 when its page was edited.
    """
    from recon.audits.packs import is_pack
    from recon.audits.verify_report import verify as verified

    if is_pack(file):
        _verify_pack(session, file, key or [], output)
    if key:
        raise ConfigError("--key is for an auditor's pack: a compliance report is compared with the ledger itself")

    project = session.project()
    result = verified(project, file, templates=templates_folder(session, templates))
    if output == "json":
        names = ("file", "kind", "sha256", "values", "unread", "since")
        print_json(
            {
                **{name: getattr(result, name) for name in names},
                "same": result.is_same,
                "differences": [vars(difference) for difference in result.differences],
            }
        )
    else:
        report = result.report
        typer.echo(
            f"{short_path(file.absolute())}: {report.project}, {report.period_from:%Y-%m-%d} to {report.last_day}"
        )
        typer.echo(f"Document SHA-256 {result.sha256}: the content's own")
        if result.unread:
            typer.echo(f"Not compared: {one_line(result.unread)}")
        for difference in result.differences:
            shown = f"{difference.path}: {difference.document} in the report, {difference.now} by ledger and proof"
            typer.echo(f"Different: {one_line(shown)}")
        values = plural(result.values, "value")
        at = f"as of {report.generated_at:%Y-%m-%d %H:%M:%S} UTC, its own time"
        if result.is_same:
            typer.echo(f"Same: {values} derived again from ledger and proof, {at}.")
        else:
            typer.echo(f"{plural(len(result.differences), 'difference')} in {values}, {at}.")
        for sentence in result.since:
            typer.echo(f"Since then: {one_line(sentence)}")
    raise typer.Exit(0 if result.is_same else 1)


def _verify_pack(session: Session, file: Path, given: list[str], output: str) -> None:
    """Verifies a pack, and ends."""
    from recon.audits.packs import read, unedited
    from recon.audits.verify_pack import keys_of, verify

    found, keys = read(file), _keys(session, given)
    result = verify(found.pack, keys or keys_of(found.pack), given=bool(keys), beside=found.beside)
    if result.state != "wrong":
        unedited(found, str(file))
    not_checked = [
        "whether the ledger has other sinks",
        *(() if found.beside else ("whether the entries are all of the period",)),
        "whether a wrong clock put entries of the period elsewhere in the chain",
        f"what the file says itself: project {found.pack.project}, made by recon {found.pack.recon_version}, and "
        + some([f"audits said of {of.name}: {of.chain.answer or 'not in the data'}" for of in result.chains]),
    ]
    if output == "json":
        print_json(_as_json(file, result, not_checked))
    else:
        typer.echo(f"{short_path(file.absolute())}: {period(found.pack.period_from, found.pack.period_to)}, as asked")
        for of in result.chains:
            for name, check in of.checks.items():
                numbers = f" ({_numbers(of)})" if name == "numbers" and of.figures else ""
                typer.echo(one_line(f"{of.name}: {name} {check}{numbers}"))
        for sentence in result.unknown:
            typer.echo(one_line(f"Not known: {sentence}"))
        for sentence in not_checked:
            typer.echo(one_line(f"Not checked: {sentence}"))
        typer.echo(result.summary)
    raise typer.Exit(0 if result.state == "right" else 1)


def _keys(session: Session, given: list[str]) -> list[PublicKey]:
    """The keys that the reader has: those given, or those of recon.yml, where there is one."""
    from recon.write.ledger.heads.keys import PublicKey
    from recon.write.ledger.heads.signing import public_keys

    if given:
        return list(map(PublicKey.parse, given))
    try:
        session.folder()
    except ConfigError:  # an auditor has the pack and nothing else
        return []
    return public_keys(session.project())


def _numbers(of: VerifiedChain) -> str:
    from recon.reports.pack import NAMES

    known = {name: figure.value for name, figure in of.figures.items()}
    return ", ".join(
        f"{NAMES[name]} {'not known' if value is None else number(value)}" for name, value in known.items()
    )


def _as_json(file: Path, result: PackVerification, not_checked: list[str]) -> dict[str, object]:
    return {
        "file": str(file),
        "kind": "pack",
        "state": result.state,
        "summary": result.summary,
        "sinks": [
            {
                "pipeline": of.chain.pipeline,
                "sink": of.chain.sink,
                "checks": {name: {"state": check.state, "text": check.text} for name, check in of.checks.items()},
                "figures": {name: figure.value for name, figure in of.figures.items()},
            }
            for of in result.chains
        ],
        "not_known": result.unknown,
        "not_checked": not_checked,
    }
