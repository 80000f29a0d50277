"""Makes a PDF of a page: PDF/A-3a, tagged, with contents, page numbers and the data as an attachment.

PDF/A-3 (ISO 19005-3) keeps what a reader needs inside the file: fonts, a colour profile, no script. Level a adds the
structure of the text, which screen readers follow. WeasyPrint lays the page out in fonts of this package, so that a
page looks alike on each machine. Characters that these lack come from the machine's fonts.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

from recon.base.errors import ConfigError
from recon.base.requirements import how_to_install
from recon.base.text import first_line

VARIANT = "pdf/a-3a"
ATTACHMENT = "compliance.json"
_HEADING = re.compile(r"<(h[23])([^>]*)>(.*?)</\1>", re.DOTALL)
_ID = re.compile(r'\bid="([^"]+)"')
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_MOST = 40  # lines of the contents, with those of the second level
_FACES = "".join(
    f'@font-face {{ font-family: "{family}"; font-weight: {weight}; src: url("{name}-latin-{weight}-normal.woff2") }}'
    for family, name, weight in (
        ("recon sans", "arimo", 400),
        ("recon sans", "arimo", 700),
        ("recon mono", "cousine", 400),
    )
)
_SOFT = "\u00ad"  # where a line may break with a hyphen; WeasyPrint breaks there whatever the style says
_INSERTED = dict.fromkeys(map(ord, f"\u2010{_SOFT}"))  # the hyphen of a line break, too

STYLE = """
:root { --sans: "recon sans", sans-serif; --mono: "recon mono", monospace; }
* { hyphens: none !important; }
.toc { margin-top: 30px; break-after: page; }
.sheet .toc h2 { border: 0; margin: 0 0 8px; padding: 0; counter-increment: none; }
.sheet .toc h2::before { content: none; }
.toc ul { list-style: none; margin: 0; padding: 0; font-size: 9pt; line-height: 1.35; }
.toc ul ul { padding-left: 16px; }
.sheet .toc li { max-width: none; margin: 0 0 1px; }
.toc a { color: var(--text); text-decoration: none; }
.toc a::after { content: leader('.') target-counter(attr(href), page); }
.sheet tr, .sheet dl, .sheet dd, .sheet li { break-inside: avoid; }
.sheet .figures { break-inside: avoid; }
.sheet h3 + p { break-after: avoid; }
.sheet .scroll:has(.figures) { break-after: avoid; }
.sheet .statements td, .sheet .statements td * { white-space: normal; overflow-wrap: anywhere; }
.sheet .statements th:nth-child(1) { width: 23%; }
.sheet .statements th:nth-child(2) { width: 50%; }
.sheet thead { break-after: avoid; }
.sheet dt { break-after: avoid; }
.sheet p { orphans: 3; widows: 3; }
.sheet h2, .sheet h3 { bookmark-label: content(text); }
button, label input { display: none; }
"""


def make(page: str, *, path: object, header: str, footer: str, data: str, at: datetime) -> bytes:
    """The PDF of an HTML page.

    Args:
        page: the page; nothing that it refers to is fetched.
        path: where it will be written, for errors.
        header: a line on top of every page.
        footer: the left part of the line below; the right one has the page's number.
        data: attached as `compliance.json`.
        at: the time of the document.

    Raises:
        ConfigError: WeasyPrint or the system libraries that it needs are missing.
    """
    weasyprint = _weasyprint(path)
    # The page refers to nothing outside itself; text from data must not make WeasyPrint fetch anything.
    nothing = weasyprint.urls.URLFetcher(allowed_protocols=())
    # WeasyPrint would warn about every style that is meant for screens.
    log = logging.getLogger("weasyprint")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        content, missing = b"", frozenset[str]()
        for _ in range(2):
            text = _named(for_paper(page, header, footer, at), missing)
            attachment = weasyprint.Attachment(
                string=data,
                name=ATTACHMENT,
                description="The numbers of this document, for recon compliance verify",
                created=at,
                modified=at,
                relationship="Data",
            )
            document = weasyprint.HTML(string=text, url_fetcher=nothing).render(
                pdf_variant=VARIANT, font_config=fonts()
            )
            content = document.write_pdf(pdf_variant=VARIANT, attachments=[attachment], finisher=_icons_are_decoration)
            # A box in place of a character is no text, and not allowed in PDF/A: its number says what it is.
            missing = frozenset(chr(code) for font in document.fonts.values() for code in font.missing)
            if not missing:
                break
    finally:
        log.setLevel(level)
    return content


def _named(text: str, missing: Collection[str]) -> str:
    """The text with some of its characters as their numbers in Unicode.

    >>> _named("a 🛒", "🛒")
    'a U+1F6D2'
    """
    return text.translate({ord(character): f"U+{ord(character):04X}" for character in missing})


def for_paper(page: str, header: str, footer: str, at: datetime) -> str:
    """The page with contents, and with what its style has to say of paper."""
    page = _SCRIPT.sub("", page)  # the numbers are an attachment, and nothing runs
    page = page.replace(_SOFT, "").replace("&shy;", "")
    created = f'<meta name="dcterms.created" content="{at:%Y-%m-%dT%H:%M:%SZ}">'
    head = f"{created}<style>{STYLE}{_margins(header, footer)}</style></head>"
    return with_contents(page).replace("</head>", head, 1)


def _weasyprint(path: object) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # that the machine has no fonts, which need not be
            import weasyprint
    except ImportError as error:
        raise ConfigError(f"{path} needs WeasyPrint, which is not installed; {how_to_install('pdf')}") from error
    except OSError as error:
        raise ConfigError(
            f"{path} needs WeasyPrint, whose system libraries are missing ({error}); "
            "install Pango, or write HTML and print it from a browser"
        ) from error
    return weasyprint


def fonts() -> Any:
    """WeasyPrint's configuration of fonts: the package's, and behind them those of the machine."""
    from weasyprint import CSS
    from weasyprint.text.fonts import FontConfiguration

    found = FontConfiguration()
    CSS(string=_FACES, base_url=f"{Path(__file__).with_name('fonts').as_uri()}/", font_config=found)
    return found


def _icons_are_decoration(_: Any, pdf: Any) -> None:
    """Figures without a text of their own: the pages draw icons alone, and the words beside them say the same."""
    for object_ in pdf.objects:
        if isinstance(object_, dict) and object_.get("S") == "/Figure" and "Alt" not in object_:
            object_["S"] = "/NonStruct"


def _margins(header: str, footer: str) -> str:
    """The lines on top of and below each page."""
    font = "font: 7.5pt var(--sans); color: #555;"
    return (
        f"@page {{ margin: 20mm 17mm 20mm; @top-left {{ content: {_quoted(header)}; {font} }}"
        f" @bottom-left {{ content: {_quoted(footer)}; {font} }}"
        f' @bottom-right {{ content: "Page " counter(page) " of " counter(pages); {font} }} }}'
    )


def _quoted(text: str) -> str:
    """A text as a CSS string, inert inside of a style element."""
    return '"' + "".join(c if c.isalnum() or c in " .,:-()" else f"\\{ord(c):06x} " for c in text) + '"'


def with_contents(page: str) -> str:
    """The page with an id for each heading, and a list of them before the first."""
    numbers = count(1)

    def numbered(heading: re.Match[str]) -> str:
        tag, attributes, text = heading.groups()
        if not _ID.search(attributes):
            attributes += f' id="part-{next(numbers)}"'
        return f"<{tag}{attributes}>{text}</{tag}>"

    page = _HEADING.sub(numbered, page)
    headings = [(h[1], _ID.findall(h[2])[0], _TAG.sub("", h[3]).strip()) for h in _HEADING.finditer(page)]
    if len(headings) > _MOST:
        headings = [heading for heading in headings if heading[0] == "h2"]
    first = _HEADING.search(page)
    if first is None:
        return page
    listed = f'<section class="toc"><h2>Contents</h2><ul>{"".join(_lines(headings))}</ul></section>'
    return page[: first.start()] + listed + page[first.start() :]


def _lines(headings: list[tuple[str, str, str]]) -> Iterator[str]:
    inside = False
    for n, (tag, name, text) in enumerate(headings):
        if tag == "h3" and not inside:
            yield "<ul>"
        elif tag == "h2" and n:
            yield "</ul></li>" if inside else "</li>"
        inside = tag == "h3"
        yield f'<li><a href="#{escape(name)}">{text}</a>' + ("</li>" if inside else "")
    yield ("</ul>" if inside else "") + ("</li>" if headings else "")


def attached(content: bytes, name: str) -> str:
    """The text of the attachment in a PDF that `make` wrote; `name` is the file's, for errors.

    Raises:
        ConfigError: pypdf is missing, or it is no such PDF, or it is truncated.
    """
    files, notes = _read(content, name, lambda reader: (reader.attachments.get(ATTACHMENT) or [], _notes(reader)))
    if len(files) != 1:
        raise ConfigError(
            f"{name} holds no numbers of a compliance report (its attachment {ATTACHMENT}): it is none, it was printed "
            "or converted, or it is older than the attachment; give a PDF that `recon compliance --format pdf` wrote"
        )
    if notes:
        raise ConfigError(
            f"{name} was edited: it has an annotation ({notes[0]}), and recon makes none; ask for the original"
        )
    return bytes(files[0]).decode("utf-8", "replace")


def _notes(reader: Any) -> list[str]:
    """The annotations of a PDF besides links, which may cover what the pages show."""
    notes = (
        annotation.get_object().get("/Subtype") for page in reader.pages for annotation in page.get("/Annots") or ()
    )
    return [str(note) for note in notes if note != "/Link"]


_NUMBERS = re.compile(r"(?<!\S)([\d,]+)\s+(?=[\d,]+(?!\S))")


def words_of(content: bytes, name: str, apart: Iterable[str]) -> str:
    """All characters of a PDF's pages in their order, without white space but between two numbers.

    Where lines and pages break does not matter. `apart` are texts that may be repeated on each page (headings of
    tables, the lines of the margins); they are left out. So are page numbers, and the hyphens of line breaks that
    earlier versions of recon made.
    """
    pages: list[str] = _read(content, name, lambda reader: [page.extract_text() for page in reader.pages])
    repeated = sorted({_dense(text) for text in apart} - {""}, key=len, reverse=True)
    words = []
    for number, page in enumerate(pages, 1):
        text = _dense(page).replace(f"Page{number}of{len(pages)}", "")
        for phrase in repeated:
            text = text.replace(phrase, "")
        words.append(text)
    # Numbers in the contents depend on where pages break, and marks of lists follow the text of their page.
    text = re.sub(r"\.{3,}\d+|•", "", "".join(words))
    # A character that the fonts of the one machine have, and those of another do not.
    return _named(text, {character for character in text if not character.isascii()})


def _dense(text: str) -> str:
    """A text without white space and inserted hyphens.

    Where one number ends and the next begins is kept, as columns of figures have it.
    """
    return "".join(_NUMBERS.sub(r"\1|", text).translate(_INSERTED).split())


def _read(content: bytes, name: str, read: Callable[[Any], Any]) -> Any:
    try:
        import pypdf
    except ImportError as error:
        raise ConfigError(
            f"{name} is a PDF, and pypdf, which reads it, is not installed; {how_to_install('pdf')}"
        ) from error
    log = logging.getLogger("pypdf")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return read(pypdf.PdfReader(io.BytesIO(content), strict=False))
    except Exception as error:  # whatever a damaged file makes it raise
        raise ConfigError(f"{name} is truncated or no PDF: {first_line(error)}") from error
    finally:
        log.setLevel(level)
