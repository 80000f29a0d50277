"""Verifies a compliance report that was written earlier: whether it is as recon wrote it, and its numbers are right.

Its content is compared with its hash, with what the page shows, and with what ledger and proof give now for the same
period.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import unescape
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, Literal

from recon._version import __version__
from recon.audits.as_of import as_of, since
from recon.audits.compliance import compliance
from recon.base.errors import ConfigError
from recon.base.text import some
from recon.model.compliance import ComplianceReport
from recon.project import Project, as_project
from recon.reports import compliance as reports
from recon.reports import document, pdf
from recon.write.ledger import open_ledger

# What says when and by what the document was made; it is not derived from the ledger.
_OF_ITS_OWN = ("generated_at", "recon_version")
_NAMES = ("pipeline", "sink", "name", "id", "invocation_id", "epoch", "first", "role")
_PART = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
_HEADINGS = re.compile(r"<thead>(.*?)</thead>", re.DOTALL)
_SHOWN = 5  # differences of a page that are listed in the message


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A value of the document, and what it is by the ledger now; `path` says which."""

    path: str
    document: Any
    now: Any


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A report that is as recon wrote it, compared with ledger and proof.

    `differences` are those from what ledger and proof say as of the report's own time; `since` says what came later.
    `unread` is why what the page shows was not compared with its data; "" where it was.
    """

    file: str
    kind: Literal["html", "pdf", "json"]
    report: ComplianceReport
    sha256: str
    values: int
    differences: tuple[Difference, ...]
    since: tuple[str, ...] = ()
    unread: str = ""

    @property
    def is_same(self) -> bool:
        """Whether everything was compared, and is the same."""
        return not self.differences and not self.unread


def verify(project: str | Path | Project, file: str | Path, *, templates: Path | None = None) -> Verification:
    """Derives every number of a compliance report again from ledger and proof, for its period and as of its time.

    Args:
        project: where recon.yml is, or a `Project`.
        file: the report.
        templates: the folder of the user's templates by which its page was laid out.

    Raises:
        ConfigError: the file is no compliance report, or truncated, edited, or of a newer version.
        LedgerError: there is no ledger, or it cannot be read.
    """
    project, name = as_project(project), str(file)
    kind, report, unread = _written(Path(file), name, templates)
    derived = as_of(project, open_ledger(project), report)
    before, after = (document.content_of(content) for content in (report, derived))
    for key in _OF_ITS_OWN:
        before.pop(key), after.pop(key)
    return Verification(
        file=name,
        kind=kind,
        report=report,
        sha256=document.document_hash(report),
        values=sum(1 for _ in _leaves(before)),
        differences=tuple(_differences(before, after, "")),
        since=tuple(since(derived, compliance(project, report.period_from, report.period_to))),
        unread=unread,
    )


# -- the file itself ---------------------------------------------------------------------------------------------------


def _written(
    path: Path, name: str, templates: Path | None
) -> tuple[Literal["html", "pdf", "json"], ComplianceReport, str]:
    """A file's kind and report, and why what it shows was not compared with its data."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror or error}; name a compliance report") from error
    if content.startswith(b"%PDF-"):
        report = document.parse(pdf.attached(content, name), name)
        return "pdf", report, _of_another_version(report) or _compare_pdf(content, report, name, templates)
    text = content.decode("utf-8", "replace").replace("\r\n", "\n")
    begin = text.lstrip()[:20].lower()
    if begin.startswith("{"):
        return "json", document.parse(text, name), ""
    if begin.startswith("<!doctype html"):
        report = document.parse(document.unpacked(text, name), name)
        return "html", report, _of_another_version(report) or _compare_page(text, report, name, templates)
    if begin.startswith("# compliance report"):
        raise ConfigError(f"{name} is Markdown, which carries no data to verify; give the HTML, PDF or JSON form")
    raise ConfigError(f"{name} is no compliance report: it is neither HTML, PDF nor JSON as recon writes it")


def _of_another_version(report: ComplianceReport) -> str:
    if report.recon_version == __version__:
        return ""
    return (
        f"recon {report.recon_version} laid it out, and this is recon {__version__}, so what it shows was not compared "
        "with its data"
    )


def _compare_page(page: str, report: ComplianceReport, name: str, templates: Path | None) -> str:
    expected = reports.render_html(report, templates)
    if page == expected:
        return ""
    shown = _edits(_words(page).split(), _words(expected).split())
    if not shown:
        raise ConfigError(f"{name} was edited: its styles or its markup are not those that recon wrote")
    raise _edited(name, shown)


def _compare_pdf(content: bytes, report: ComplianceReport, name: str, templates: Path | None) -> str:
    apart = [_words(heading) for heading in _HEADINGS.findall(reports.render_html(report, templates))]
    apart += [reports.running_header(report), reports.running_footer(report)]
    try:
        fresh = reports.render_pdf(report, name, templates)
    except ConfigError as error:
        return f"what its pages show was not compared with its data: {error}"
    mine, theirs = (pdf.words_of(pages, name, apart) for pages in (content, fresh))
    if mine == theirs:
        return ""
    raise _edited(name, _edits(_tokens(mine), _tokens(theirs)))


def _edited(name: str, edits: Iterable[str]) -> ConfigError:
    return ConfigError(f"{name} was edited after recon wrote it: {some(list(edits), _SHOWN)}; ask for the original")


def _words(page: str) -> str:
    """What a page shows, without its markup."""
    return unescape(_PART.sub(" ", page))


def _tokens(text: str) -> list[str]:
    """Numbers, with their separators, and what is between them."""
    return re.findall(r"\d[\d,.:-]*\d|\d|[^\d]+", text)


def _edits(mine: list[str], theirs: list[str]) -> list[str]:
    """What one sequence has where the other has something else."""
    # Few words of many differ: only what lies between the first and the last of them is compared.
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))
    mine, theirs = mine[same:], theirs[same:]
    edits = []
    for what, a, b, c, d in SequenceMatcher(None, theirs, mine).get_opcodes():
        if what != "equal":
            before, after = " ".join(theirs[a:b])[:80], " ".join(mine[c:d])[:80]
            edits.append(f"it shows {after!r} where its data give {before!r}")
    return edits


# -- its numbers -------------------------------------------------------------------------------------------------------


def _leaves(value: Any) -> Iterator[Any]:
    """The single values of a document."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


_ABSENT = object()


def _differences(before: Any, after: Any, path: str) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, path)
    elif before != after:
        yield Difference(path=path, document=_value(before), now=_value(after))


def _of_lists(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    """Items by what names them, where they have different names; else by their place."""
    names = [_name(item) for item in before], [_name(item) for item in after]
    if all(len(set(of_list)) == len(of_list) and None not in of_list for of_list in names):
        mine, theirs = dict(zip(names[0], before, strict=True)), dict(zip(names[1], after, strict=True))
        for name in dict.fromkeys([*mine, *theirs]):
            yield from _differences(mine.get(name, _ABSENT), theirs.get(name, _ABSENT), f"{path}[{name}]")
        if list(mine) != list(theirs) and set(mine) == set(theirs):
            yield Difference(path=f"{path} (order)", document=list(mine), now=list(theirs))
        return
    for place, (item, other) in enumerate(zip_longest(before, after, fillvalue=_ABSENT)):
        yield from _differences(item, other, f"{path}[{place}]")


def _name(item: Any) -> str | None:
    """What distinguishes an item of a list from others."""
    if not isinstance(item, dict):
        return None
    return ".".join(str(item[key]) for key in _NAMES if item.get(key) is not None) or None


def _value(value: Any) -> Any:
    return "nothing" if value is _ABSENT else value
