"""Credentials within a location: in a URL, or in a JDBC URL. No message, log line or result shows one.

They are found by their form alone, so also in texts of other libraries: before the host (`s3://key:secret@bucket`), and
behind it (`?sig=…`, `;password=…`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

HIDDEN = "***"
# Names of settings and variables whose values are credentials: Kafka's, the object stores', JDBC's, Spark's.
SECRET_NAME = re.compile(
    r"passw(or)?d|pwd|passphrase|secret|token|jaas|credential|connection.?string|key\.pem|keystore\.key"
    r"|(access|account|api|auth|client|encryption|function|hmac|master|private|shared|signing|storage|subscription).?key"
    r"|ssl\.key$|user\.info|(?<![a-z])(sas|sig|pw|pass|pat|bearer)(?![a-z])|(?<![a-z])signature$",
    re.IGNORECASE,
)
_URL = re.compile(r"(?:jdbc:|\b[A-Za-z][\w+.-]*:/)(?:\{[^}\s]*\}|[^\s\"'<>`])+(?<![.,:])", re.IGNORECASE)
_USER_INFO = re.compile(
    # A secret key of AWS may have slashes. Before the @ of `abfss://container@account` stands no credential.
    r"(?<=://)(?:(?<=s3://)|(?<=s3a://)|(?<=s3n://))[^:/@]+:(?P<of_store>[^@]+)(?=@)"
    r"|(?<=://)[^/@:]*:(?P<password>[^/@]+)(?=@)"
    r"|(?:(?<=http://)|(?<=https://))(?P<token>[^/@:]+)(?=@)"
    r"|(?<=:thin:)[^/@]+/(?P<of_oracle>[^@]+)(?=@)",
    re.IGNORECASE,
)
_PARAMETER = re.compile(r"(?P<name>(?<=[?&;])[\w.%-]+)=(?P<value>\{[^}]*\}|[^;&]+)")


def in_urls(text: str) -> Iterator[str]:
    """The credentials in the URLs of a text, as they stand there, decoded, and encoded.

    >>> sorted(in_urls("s3://KEY:a/b@bucket/x and abfss://c@a.dfs.core.windows.net/x?sv=1&sig=q%2Bz"))
    ['KEY:a/b@', 'a%2Fb', 'a/b', 'q%252Bz', 'q%2Bz', 'q+z']
    """
    for url in _URL.findall(text):
        before_host = list(_USER_INFO.finditer(url))
        yield from (f"{match[0]}@" for match in before_host)
        found = [value for match in before_host for value in match.groupdict().values() if value]
        found += [match["value"] for match in _PARAMETER.finditer(url) if SECRET_NAME.search(match["name"])]
        for value in found:
            yield from {value, unquote(value), quote(value, safe="")}


def without_credentials(text: str) -> str:
    """The text without the credentials in its URLs; names of parameters stay.

    >>> without_credentials("jdbc:sqlserver://h;user=u;password=pw; is not reached, nor abfss://c@a/x?sig=s&sv=1")
    'jdbc:sqlserver://h;user=u;password=***; is not reached, nor abfss://c@a/x?sig=***&sv=1'
    """
    return _URL.sub(_hidden, text) if ":/" in text or "jdbc:" in text else text


def _hidden(url: re.Match[str]) -> str:
    def parameter(match: re.Match[str]) -> str:
        return f"{match['name']}={HIDDEN}" if SECRET_NAME.search(match["name"]) else match[0]

    return _PARAMETER.sub(parameter, _USER_INFO.sub(HIDDEN, url[0]))


class _Hiding(logging.Filter):
    """Takes credentials out of log records."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes."""
        said = record.getMessage()
        if (hidden := without_credentials(said)) != said:
            record.msg, record.args = hidden, None
        return True


logging.getLogger("recon").addFilter(_Hiding())
