"""Credentials within a location: in a URL, or in a JDBC URL. No message, log line or result shows one.

They are found by their form alone, so also in texts of other libraries: before the host (`s3://key:secret@bucket`),
behind it (`?sig=…`, `;password=…`, `(password=…)`), and in the header of a request (`Authorization: Bearer …`). Where a
URL can be read in two ways, the one that hides more is taken.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_plus

HIDDEN = "***"
# Names of settings and variables whose values are credentials: Kafka's, the object stores', JDBC's, Spark's.
SECRET_NAME = re.compile(
    r"passw(or)?d|pwd|passphrase|secret|token|jaas|credential|connection.?string|key\.pem|keystore\.key"
    r"|(access|account|api|auth|client|customer|encryption|function|hmac|master|private|shared|signing|storage"
    r"|subscription).?key"
    r"|ssl\.key$|user\.info|(?<![a-z])(sas|sig|pw|pass|pat|bearer)(?![a-z])|(?<![a-z])signature$|assertion$"
    r"|authorization$",
    re.IGNORECASE,
)
# A URL begins with its scheme and a slash, and ends at a blank, a quote or an angle bracket; `{…}` may have quotes.
_URL = re.compile(r"(?:jdbc:|(?<![\w+.-])[\w+.-]+:/)(?:\{[^{}\s]*\}|[^\s\"'<>`])+(?<![.,:])", re.IGNORECASE)
_HEAD = re.compile(r"(?P<oracle>jdbc:oracle:\w+:(?!//))|(?P<scheme>(?:[\w+.-]+:)+)//", re.IGNORECASE)
_HOSTS = re.compile(r"[\w.~%-]*(?::\d*)?(?:,[\w.~%-]*(?::\d*)?)*|\[[\da-fA-F:.]*\](?::\d*)?")
# Schemes whose paths may have an @, and whose hosts have ports; of others, `user:12/3@host` has a password.
_WITH_PORTS = re.compile(
    r"(\w+\+)?https?:|(web|sweb|s?view)?hdfs:|viewfs:|file:|s?ftp:|ssh:|kafka:|spark:|dbfs:|alluxio:|(o3fs|ofs):|gs:"
    r"|abfss?:|wasbs?:|adls?:|oss:",
    re.IGNORECASE,
)
_TOKEN_ALONE = re.compile(r"(?:\w+\+)?https?:|wss?:", re.IGNORECASE)  # schemes where a user alone may be a token
# A parameter, by what stands before it. A path may have the others: `s3://bucket/token=1/date=2`.
_PARAMETER = re.compile(r"(?P<before>[?&;#])(?P<name>[\w.%+-]+)=")
_OF_JDBC = re.compile(r"(?P<before>[?&;#(,/:])(?P<name>[\w.%+-]+)=")
_NEXT = r"(?=[\w.%+-]+=)"
_IN_BRACES = re.compile(r"\{(?:[^}]|\}\}){0,500}\}(?=;|$)")
# Where a parameter's value ends: at the next one, so that a password may have the character that separates them.
_ENDS = {
    **dict.fromkeys("?&#", re.compile(rf"&{_NEXT}|&?$")),
    **dict.fromkeys(";:", re.compile(rf";{_NEXT}|;?$")),
    **dict.fromkeys("(,/", re.compile(rf"[,&;]{_NEXT}|\)(?=[(),/?&;]|$)|,?$")),
}
# A query whose URL ended at a blank, or has no host: `/x?sig=…`.
_QUERY = re.compile(r"(?<=[?&])(?P<name>[\w.%+-]+)=(?P<value>[^\s&\"'<>`]+)")
# Parameters of URLs whose values may be keys, and may be words.
_PERHAPS = re.compile(r"code|key|password_?hash|auth", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]+([_-][A-Z]+)*|[A-Za-z]?[a-z]+([_-][a-z]+)*|\{\w*\}|\d{1,6}|")
_HEADER = re.compile(
    r"authorization\\?[\"']?\s{0,4}[:=,]\s{0,4}(?:b?\\?[\"'])?"
    r"(?P<kind>(?:bearer|basic|token|digest|negotiate|apikey|sharedkey|sharedkeylite|aws4-hmac-sha256)\s{1,4})?"
    r"(?P<value>[^\s\"'\\<>]+)"
    r"|(?P<alone>\bbearer\s{1,4})(?P<token>(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,})",
    re.IGNORECASE,
)


class Span(NamedTuple):
    """Where a credential stands in a text; `value` is it without what belongs to it, such as the name of its user."""

    start: int
    end: int
    value: str


def credentials(url: str) -> Iterator[Span]:
    """The credentials of one URL, in their order.

    >>> [span.value for span in credentials("jdbc:mysql://address=(host=h)(user=u)(password=a/b)/db?pass%77ord=c&x=1")]
    ['a/b', 'c']
    """
    at = 0
    if (user_info := _user_info(url)) is not None:
        yield user_info
        at = user_info.end
    parameters = _OF_JDBC if url[:5].lower() == "jdbc:" else _PARAMETER
    while (found := parameters.search(url, at)) is not None:
        at = found.end() - 1  # two parameters may share a separator
        name, start = unquote(found["name"]), found.end()
        if not SECRET_NAME.search(name) and not _PERHAPS.fullmatch(name):
            continue
        in_braces = _IN_BRACES.match(url, start)
        ending = in_braces or _ENDS[found["before"]].search(url, start)
        at = in_braces.end() if in_braces else ending.start() if ending else len(url)
        value = url[start:at]
        if value and (SECRET_NAME.search(name) or not _WORD.fullmatch(value)):
            yield Span(start, at, value)


def has_user_info(url: str) -> bool:
    """Whether a URL has a credential before its host."""
    return _user_info(url) is not None


def _user_info(url: str) -> Span | None:
    """What stands before the @ of a URL's host, where that holds more than the name of a user or of a container."""
    head = _HEAD.match(url)
    if head is None:
        return None
    begin = head.end()
    if head["oracle"]:
        at = url.rfind("@", begin, _first(url, "?(", begin))
        _, slash, password = url[begin:at].partition("/") if at >= 0 else ("", "", "")
        return Span(begin, at, password) if slash else None
    end = _first(url, "/?#;(", begin)
    at = url.rfind("@", begin, end)
    if at < 0:
        at = _unusual(url, begin, end, with_ports=_WITH_PORTS.fullmatch(head["scheme"]) is not None)
    if at < 0:
        return None
    user, colon, password = url[begin:at].partition(":")
    if colon:
        return Span(begin, at, password)
    return Span(begin, at, user) if user and _TOKEN_ALONE.fullmatch(head["scheme"]) else None


def _unusual(url: str, begin: int, end: int, *, with_ports: bool) -> int:
    """Where the @ behind a password with a slash, a question mark or a semicolon stands; -1 where there is none."""
    if ":" not in url[begin:end]:
        return -1
    first, query = url.find("@", end), _first(url, "?#;", begin)
    usual = _HOSTS.fullmatch(url, begin, end)
    if usual and (with_ports or first < 0 or first > query):
        return -1
    return url.rfind("@", end, _first(url, "?", first)) if first >= 0 else -1


def _first(text: str, of: str, begin: int) -> int:
    """Where the first of these characters stands, or the text's end."""
    return min((at for character in of if (at := text.find(character, begin)) >= 0), default=len(text))


def spellings(value: str) -> Iterator[str]:
    """A credential as it is written: decoded and encoded for a URL, as JSON and as Python write it."""
    plain = {value, unquote(value), unquote_plus(value)}
    yield from plain
    for each in plain:
        yield from (quote(each, safe=""), quote(each), repr(each)[1:-1])
        yield from (json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])


def in_url(url: str) -> Iterator[str]:
    """The credentials of one URL, each in all its spellings; with a password, its user."""
    for span in credentials(url):
        yield url[span.start : span.end]
        yield from spellings(span.value)
        if span.value.startswith("{"):
            yield from spellings(span.value[1:-1].replace("}}", "}"))


def in_text(text: str) -> Iterator[str]:
    """The credentials in the URLs and the headers of a text, as they stand there, decoded, and encoded.

    >>> sorted(set(in_text("s3://KEY:a/b@bucket/x and abfss://c@a.dfs.core.windows.net/x?sv=1&sig=q%2Bz")))
    ['KEY:a/b', 'a%2Fb', 'a/b', 'q%252Bz', 'q%2Bz', 'q+z']
    """
    for url in _URL.findall(text):
        yield from in_url(url)
    for found in _QUERY.finditer(text):
        if SECRET_NAME.search(unquote(found["name"])):
            yield from spellings(found["value"])
    for found in _HEADER.finditer(text):
        if (value := _of_header(found)) is not None:
            yield from spellings(value)


def without_credentials(text: str) -> str:
    """The text without the credentials in its URLs and headers; names of parameters stay.

    >>> without_credentials("jdbc:sqlserver://h;user=u;password=pw; is not reached, nor abfss://c@a/x?sig=s&sv=1")
    'jdbc:sqlserver://h;user=u;password=***; is not reached, nor abfss://c@a/x?sig=***&sv=1'
    >>> without_credentials("Authorization: Bearer abc1 is refused")
    'Authorization: Bearer *** is refused'
    """
    folded = text.lower()
    if ":/" in text or "jdbc:" in folded:
        text = _URL.sub(lambda found: hidden(found[0]), text)
    if "=" in text and ("?" in text or "&" in text):
        text = _QUERY.sub(_hidden_query, text)
    return _HEADER.sub(_hidden_header, text) if "authorization" in folded or "bearer" in folded else text


def hidden(url: str) -> str:
    """One URL without its credentials."""
    parts, at = [], 0
    for span in credentials(url):
        parts += [url[at : span.start], HIDDEN]
        at = span.end
    return "".join([*parts, url[at:]])


def _hidden_query(found: re.Match[str]) -> str:
    return f"{found['name']}={HIDDEN}" if SECRET_NAME.search(unquote(found["name"])) else found[0]


def _of_header(found: re.Match[str]) -> str | None:
    """The credential of a header; None for a word of a sentence, as in `authorization: failed`."""
    value: str = found["token"] or found["value"]
    plain = not found["alone"] and not found["kind"] and _WORD.fullmatch(value.rstrip(".,;:)"))
    return None if plain else value


def _hidden_header(found: re.Match[str]) -> str:
    value = _of_header(found)
    return found[0] if value is None else f"{found[0][: -len(value)]}{HIDDEN}"


class _Hiding(logging.Filter):
    """Takes credentials out of log records."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        said = record.getMessage()
        if (hidden := without_credentials(said)) != said:
            record.msg, record.args = hidden, None
        return True


logging.getLogger("recon").addFilter(_Hiding())
