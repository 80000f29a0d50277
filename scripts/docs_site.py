"""Build the site of docs/ into build/docs/site; `make docs` calls it.

The pages of docs/ are copied to build/docs/pages. Beside them come pages that no one writes by hand: the API reference
from docstrings, sample reports, the changelog, and the source files that pages link to. Zensical then builds the site
in strict mode, and every link of the built pages is followed: one that leads nowhere fails the build, and so does an
asset that is loaded from elsewhere.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from recon.audits.pack import pack
from recon.local.demo import trial
from recon.project import load
from recon.recovery.sample import sample
from recon.reports import compliance, forms, html
from recon.reports import pack as pack_pages
from recon.reports import sample as sample_pages
from tests.support.heads import grow, publish_heads, signing_project
from tests.support.sample_month import month
from tests.support.sample_run import healthy_run, sample_run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NAV = DOCS / "nav.yml"
CONFIG = DOCS / "zensical.toml"
WORK = ROOT / "build" / "docs"

MODULES = ("recon", "recon.checks", "recon.testing")
_NOT_COPIED = ("nav.yml", "zensical.toml")
# Other names of what the page has already, and what is no class or function.
NOT_SHOWN = {"recon": ("audit", "__version__")}
_LINK = re.compile(r"(?<=\]\()(?!https?:)([^)#\s]+)")
_NO_SEARCH = "---\nsearch:\n  exclude: true\n---\n\n"

Nav = list[Any]  # pages and {title: pages}


# The pages


def stage(pages: Path) -> None:
    """Copies docs/ and makes the pages that nobody writes."""
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    changelog = (ROOT / "CHANGELOG.md").read_text()
    _write(pages / "changelog.md", changelog.replace("](docs/", "]("))
    for module in MODULES:
        _write(pages / "reference" / f"{module}.md", reference(module))
    samples(pages / "samples")
    for page in sorted(pages.rglob("*.md")):
        show_sources(page, pages)


def reference(module: str) -> str:
    """The page of a public module: a section per public name, filled in from its docstring."""
    names = [name for name in import_module(module).__all__ if name not in NOT_SHOWN.get(module, ())]
    sections = (f"::: {module}.{name}\n" for name in sorted(names, key=str.lower))
    return f"# {module}\n\n" + "\n".join(sections)


def show_sources(page: Path, pages: Path) -> None:
    """Makes a page of each source file that this page links to, and leads the link there."""

    def shown(match: re.Match[str]) -> str:
        source = Path(os.path.normpath(DOCS / page.parent.relative_to(pages) / match[1]))
        if source.is_relative_to(DOCS) or not source.is_file():
            return match[1]
        name = source.relative_to(ROOT)
        target = pages / "source" / f"{name}.md"
        _write(target, f"{_NO_SEARCH}# {name}\n\n`````{source.suffix[1:]}\n{source.read_text()}`````\n")
        return os.path.relpath(target, page.parent)

    text = page.read_text()
    changed = _LINK.sub(shown, text)
    if changed != text:
        page.write_text(changed)


# Samples


def samples(folder: Path) -> None:
    """Sample reports, drawn from recorded runs by the code that draws everybody's."""
    run = sample_run()
    html.write(run, folder / "report.html")
    html.write(healthy_run(), folder / "complete.html")
    _compliance(folder / "compliance.html")
    _sample(folder / "sample.html")
    forms.write(run, "junit", folder / "junit.xml")
    forms.write(run, "csv", folder / "findings.csv")
    _pack(folder / "pack.html")
    _write(folder / "markdown.md", f"{_NO_SEARCH}{forms.text(run, 'markdown')}")


def _compliance(page: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        compliance.write(month(Path(folder)), page)


def _sample(page: Path) -> None:
    """Records of the recording of `recon try`, whose folder is named as it might be elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        day = trial.unpack(Path(folder)).date()
        drawn = sample(load(Path(folder)), day, day, n=12, seed="2026-11")
        _write(page, sample_pages.text(drawn, "html").replace(folder, "/srv"))


def _pack(page: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = signing_project(Path(folder))
        grow(project, 12)
        publish_heads(project)
        pack_pages.write(pack(project, "2026-11-20", "2026-11-21"), page)


def _write(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)


# The navigation


def navigation(pages: Iterable[str], nav_file: Path = NAV) -> Nav:
    """nav.yml with its patterns replaced by the pages that they match."""
    nav = yaml.safe_load(nav_file.read_text())
    named = set(_flat(nav))
    rest = [page for page in sorted(pages) if page not in named]
    return _expanded(nav, rest)


def _expanded(nav: Nav, rest: Sequence[str]) -> Nav:
    expanded: Nav = []
    for item in nav:
        if isinstance(item, dict):
            expanded.append({title: _expanded(below, rest) for title, below in item.items()})
        elif "*" in item:
            expanded += fnmatch.filter(rest, item)
        else:
            expanded.append(item)
    return expanded


def _flat(nav: Nav) -> Iterator[str]:
    for item in nav:
        if isinstance(item, dict):
            for below in item.values():
                yield from _flat(below)
        else:
            yield item


def pages_in(nav: Nav) -> list[str]:
    """The pages of a navigation, in its order."""
    return list(_flat(nav))


def config(nav: Nav) -> str:
    """Zensical's configuration, with the navigation and the place of the code whose docstrings are shown."""
    code = f"[project.plugins.mkdocstrings.handlers.python]\npaths = {_toml([str(ROOT)])}"
    sections = [f"[[project.nav]]\n{_toml(section)[1:-1]}" for section in nav]
    return "\n".join([CONFIG.read_text(), code, *sections, ""])


def _toml(value: Nav | Mapping[str, Nav] | str) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(below)}" for key, below in value.items()) + "}"
    return "[" + ", ".join(_toml(item) for item in value) + "]"


# The built pages


class _Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if "src" in values:
            self.loads.append(values["src"])
        if tag == "link" and "href" in values and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(values["href"])


def faults(site: Path) -> list[str]:
    """Links and assets of the built pages that lead nowhere, and assets that are loaded from elsewhere."""
    pages = {file: _Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        where = file.relative_to(site)
        found += [f"{where}: {asset} is loaded from elsewhere" for asset in page.loads if _elsewhere(asset)]
        for link in (*page.links, *page.loads):
            if not _elsewhere(link) and not _leads_somewhere(link, file, site, pages):
                found.append(f"{where}: {link} leads nowhere")
    return found


def _elsewhere(link: str) -> bool:
    return bool(urlsplit(link).netloc)


def _leads_somewhere(link: str, file: Path, site: Path, pages: Mapping[Path, _Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme:  # data:, mailto:
        return True
    target = file
    if parts.path:
        base = site if parts.path.startswith("/") else file.parent
        target = Path(os.path.normpath(base / unquote(parts.path).lstrip("/")))
    if target.is_dir():
        target /= "index.html"
    # A report's own page uses the fragment for its search and filters.
    if not parts.fragment or target.is_relative_to(site / "samples") or target not in pages:
        return target.exists()
    return unquote(parts.fragment) in pages[target].anchors


def build(work: Path = WORK) -> list[str]:
    """Builds the site into `work`/site; returns what is wrong with its links.

    Raises:
        subprocess.CalledProcessError: Zensical refused the pages.
    """
    shutil.rmtree(work, ignore_errors=True)
    pages = work / "pages"
    stage(pages)
    file = work / "zensical.toml"
    file.write_text(config(navigation(str(page.relative_to(pages)) for page in pages.rglob("*.md"))))
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", str(file)], check=True)
    return faults(work / "site")


if __name__ == "__main__":
    try:
        wrong = build()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    done = "built; to read and search it: .venv/bin/python -m http.server --bind 127.0.0.1 --directory build/docs/site"
    sys.stdout.write(("\n".join(wrong) or done) + "\n")
    sys.exit(bool(wrong))
