"""Edits of an auditor's pack, one at a time: every value of its data, every element, attribute and text of its page."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

# A splice of a page: from where, to where, and what stands there then.
Splice = tuple[int, int, str]
Edit = tuple[str, Splice]

_SLOT = re.compile(r'(?<=id="data">)[A-Za-z0-9+/=]*(?=</script>)')

HOSTILE = (
    '<p id="answer" data-state="right">Right: 9 sinks.</p>',
    '<table><tbody id="numbers"><tr><th>orders</th><td data-state="right">999</td></tr></tbody></table>',
    '<style>* {display: none} body::before {content: "Right: 999"; display: block}</style>',
    '<style media="all">td {font-size: 0} td::before {content: "999"; font-size: 15px}</style>',
    '<link rel="stylesheet" href="data:text/css,td{display:none}">',
    '<template shadowrootmode="open"><p id="answer">Right: 999</p></template>',
    '<div><template shadowrootmode="open"><b>Right: 999</b></template></div>',
    '<form name="querySelectorAll"></form><img name="createElement"><img name="replaceChildren">',
    '<form name="getElementById"></form><form name="firstChild"></form><form name="lastChild"></form>',
    '<form id="document" name="documentElement"></form><img name="body"><img name="append">',
    '<a id="crypto"></a><a id="Document"></a><a id="TextEncoder"></a><a id="Blob"></a><a id="Response"></a>',
    '<form id="data"><input name="textContent"></form>',
    '<script id="data" type="x">AAAA</script>',
    '<pre id="given">Right: 999</pre>',
    '<script>document.title = "x"</script>',
    '<img src="x" onerror="document.body.textContent = 999">',
    '<img src="http://127.0.0.1:9/x">',
    '<iframe srcdoc="Right: 999"></iframe>',
    '<object data="data:text/html,Right"></object>',
    '<base href="http://127.0.0.1:9/">',
    "<dialog open>Right: 999</dialog>",
    '<html hidden style="display: none" data-verified="right">',
    '<body hidden style="display: none" data-verified="right">',
    "<frameset><frame></frameset>",
    '<meta http-equiv="refresh" content="0;url=data:text/plain,Right">',
    "<!--",
    "<plaintext>",
    "<textarea>",
    "<template>",
    "<title>",
    "<noscript>",
    "<svg>",
    "<math>",
    "<select>",
    "<style>",
    "</body></html>",
    "</main></body>Right: 999",
    "\u202e",
)


def data_of(page: str) -> dict[str, Any]:
    """The data of a pack, of either format."""
    found = _SLOT.search(page)
    assert found is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[0])))
    return data


def slot_of(page: str) -> tuple[int, int]:
    """Where the data of a pack stand."""
    found = _SLOT.search(page)
    assert found is not None
    return found.span()


def packed(data: Any) -> str:
    """Data as a pack has them."""
    return base64.b64encode(gzip.compress(json.dumps(data).encode(), 1, mtime=0)).decode()


def spliced(page: str, splice: Splice) -> str:
    """The page with one edit."""
    begin, end, text = splice
    return page[:begin] + text + page[end:]


def with_data(page: str, change: Callable[[dict[str, Any]], Any]) -> str:
    """The page with data that were changed in place."""
    data = data_of(page)
    change(data)
    return spliced(page, (*slot_of(page), packed(data)))


# -- the data ----------------------------------------------------------------------------------------------------------


def of_data(page: str) -> Iterator[Edit]:
    """Every value of the data, and every field of its entries, changed in several ways."""
    data, slot = data_of(page), slot_of(page)
    for path, value in _values(data, ()):
        for what, other in _others(value):
            changed = copy.deepcopy(data)
            if _put(changed, path, other):
                yield f"{_name(path)} {what}", (*slot, packed(changed))
    for at, chain in enumerate(data["chains"]):
        for place, text in enumerate(chain["texts"]):
            for what, other in _entries(text):
                for sealed in (False, True):
                    changed = copy.deepcopy(data)
                    texts = changed["chains"][at]["texts"]
                    texts[place] = other
                    if sealed:
                        seal(texts, place)
                    yield f"chains.{at}.texts.{place} {what}{' sealed' if sealed else ''}", (*slot, packed(changed))


def _values(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    yield path, value
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _values(item, (*path, key))


_GONE = object()


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    yield "removed", _GONE
    yield "null", None
    yield "of another type", [value] if isinstance(value, str) else str(value)
    if isinstance(value, str):
        middle = len(value) // 2
        yield "empty", ""
        yield "longer", f"{value}x"
        yield "cut", value[:-1]
        if value:
            yield "a character", f"{value[:middle]}{'y' if value[middle] != 'y' else 'z'}{value[middle + 1 :]}"
            yield "a direction", f"\u202e{value}"
    if isinstance(value, int):
        yield from ((f"{number:+}", value + number) for number in (1, -1, 2**20, 86_400_000_000, -86_400_000_000))
        yield "a half", value + 0.5
        yield "large", 2**60
    if isinstance(value, list):
        yield "empty", []
        yield "reversed", value[::-1]
        yield "without the first", value[1:]
        yield "without the last", value[:-1]
        yield "the last twice", [*value, *value[-1:]]
        yield "the first twice", [*value[:1], *value]
    if isinstance(value, dict):
        yield "with more", {**value, "more": "Right"}
    if value is None:
        yield "a text", "x"


def _put(data: Any, path: tuple[str | int, ...], value: Any) -> bool:
    if not path:
        return False
    *above, key = path
    for step in above:
        data = data[step]
    if value is _GONE:
        del data[key]
    else:
        data[key] = value
    return True


def _name(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """An entry with one field changed."""
    head_text, ranges = text.split("\n")
    head = json.loads(head_text)
    for name, value in head.items():
        for other in _fields(value):
            changed = json.dumps({**head, name: other}, separators=(",", ":"), ensure_ascii=False)
            yield f"{name}={other!r}", f"{changed}\n{ranges}"
    for number in sorted(set(re.findall(r"\d+", ranges))):
        changed = re.sub(rf"\b{number}\b", str(int(number) + 1), ranges, count=1)
        yield f"a range {number}", f"{head_text}\n{changed}"


def _fields(value: Any) -> list[Any]:
    if isinstance(value, int):
        return [value + 1, None]
    return [f"{value}x"] if isinstance(value, str) else [0, "x"]


def seal(texts: list[str], place: int) -> None:
    """Links all entries behind one anew, as who edits a file can."""
    for at in range(place + 1, len(texts)):
        before = hashlib.sha256(texts[at - 1].encode()).hexdigest()
        texts[at] = re.sub(r'"prev_hash":"[0-9a-f]*"', f'"prev_hash":"{before}"', texts[at], count=1)


# -- the page ----------------------------------------------------------------------------------------------------------


def of_page(page: str) -> Iterator[Edit]:
    """Every element, attribute and text outside of script and policy changed, and hostile markup between any two."""
    policy = page.index("Content-Security-Policy")
    for tag in _tags(page):
        begin, end = tag.span()
        name = f"{tag[0][:40]} at {begin}"
        yield f"{name} removed", (begin, end, "")
        yield f"{name} twice", (end, end, tag[0])
        for more in ('hidden=""', 'style="display:none"', 'style="position:fixed;inset:0"', 'id="answer"', "inert"):
            if not tag[0].startswith(("</", "<!")):
                yield f"{name} with {more}", (end - 1, end - 1, f" {more}")
        for attribute in re.finditer(r'\s[\w-]+="([^"]*)"', tag[0]):
            low, high = begin + attribute.start(), begin + attribute.end()
            yield f"{name} without {attribute[0]}", (low, high, "")
            for value in ("", "x", f"{attribute[1]}x"):
                place = begin + attribute.start(1), begin + attribute.end(1)
                yield f"{name} {attribute[0]} as {value!r}", (*place, value)
        for hostile in HOSTILE:
            # A script before the policy is one that nothing forbids: only the hash of the page shows it.
            if begin > policy or not any(script in hostile for script in ("<script>", "onerror")):
                yield f"{hostile} before {name}", (begin, begin, hostile)
    for text in re.finditer(r">([^<>]+)<", _blank(page)):
        for other in ("", "Right: 999 rows", "\u202e"):
            yield f"text at {text.start(1)} as {other!r}", (*text.span(1), other)
    for hostile in HOSTILE:
        yield f"{hostile} at the end", (len(page), len(page), hostile)


def _blank(page: str) -> str:
    """The page with script and policy as spaces: these are not edited."""
    for kept in (r"<script>.*?</script>", r'<meta http-equiv="Content-Security-Policy"[^>]*>'):
        page = re.sub(kept, lambda found: "<" + " " * (len(found[0]) - 2) + ">", page, flags=re.DOTALL)
    return page


def _tags(page: str) -> list[re.Match[str]]:
    blank = re.sub(r"(<style>)(.*?)(</style>)", lambda f: f[1] + " " * len(f[2]) + f[3], _blank(page), flags=re.DOTALL)
    return list(re.finditer(r"<[^>\s][^>]*>", blank))
