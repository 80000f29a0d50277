"""Which values of rows a result may show: the one place that every sample and every stored failing row goes through.

`samples` and `never_show` of a check's config decide. `none` shows no row. `keys` shows a row's micro-batch, its source
record, the columns that identify it and counts of recon's own, and no other value. `hash` shows a keyed hash of every
value but positions and counts. `full` shows all. A column of `never_show` is never shown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recon.base.credentials import HIDDEN
from recon.model import plain
from recon.model.wire.columns import QUARANTINE_COLUMNS, STAMPED_COLUMNS
from recon.project.samples import POLICIES, SamplesPolicy

if TYPE_CHECKING:
    from recon.project import CheckConfig, Project, Sink, Table

Row = Mapping[str, Any]

_POSITION = frozenset((*STAMPED_COLUMNS, *QUARANTINE_COLUMNS))
# What recon's own checks add to a failing row; a column of the table that has such a name is none of these.
_COUNTS = frozenset(("n_records", "rows_here", "rows_there"))
_HASH_DIGITS = 16
# Errors of Spark, of Delta and of databases quote values of rows: The value 'ada@example.org' of the type "STRING" …,
# Duplicate entry 'ada@example.org' for key …, Key (email)=(ada@example.org) already exists.
_QUOTED_VALUE = re.compile(
    r"(?<=The value )(.+?)(?= of the type | cannot be | \(|$)"
    r"|(?<=Text )'.*'(?= could not be parsed)"
    r"|(?<=are detected in record parsing: ).+"
    r"|(?<=The )\S+ rounded half up from \S+(?= cannot be represented as Decimal)"
    r"|\S+(?= cannot be represented as Decimal)"
    r"|(?<=Duplicate map key ).+?(?= was found)"
    r"|(?<=Error parsing )'.*'(?= to interval)"
    r"|(?<=URL cannot be decoded: ).+?(?=\. Please|$)"
    r"|(?<=The url is invalid: ).+?(?=\. |$)"
    r"|(?<=Illegal input for day of week: ).+?(?=\.(?: |$)|$)"
    r"|(?<=the row value ).+?(?= of the class )"
    r"|(?<=violated by row with values:).+"
    # PostgreSQL and its driver; MySQL and MariaDB; SQL Server
    r"|(?<=Batch entry )\d+ .*(?= was aborted)"
    r"|(?<=\)=)\(.*?\)(?= already exists| is not present| is still referenced| conflicts)"
    r"|(?<=Failing row contains )\(.*"
    r"|(?<=invalid input syntax for type )[^\"]+\".*\""
    r"|(?<=invalid input value for enum )[^\"]+\".*\""
    r"|(?<=value )\".*\"(?= is out of range)"
    r"|(?<=field value out of range: )\".*\""
    r"|(?<=Duplicate entry )'.*'(?= for key)"
    r"|(?<= value: )'.*'(?= for column)"
    r"|(?<=The duplicate key value is )\(.*\)"
    r"|(?<=Truncated value: )'.*'"
    r"|(?<=converting the )\w+ value '.*'(?= to data type)",
    re.DOTALL,
)
NOT_SHOWN = "not shown (samples: {policy}); docs/privacy.md says how to show more"


@dataclass(frozen=True)
class Samples:
    """What the samples of one table may show.

    Args:
        keys: the columns that identify a row of the table, such as the keys of its sink.
        columns: all of the table's columns, where they are known.
        hash_key: gives the key of `samples: hash`; a new one for every `Samples` by default.
    """

    keys: Sequence[str] = ()
    columns: Collection[str] = ()
    hash_key: Callable[[], bytes] = field(default=lambda: secrets.token_bytes(32), repr=False)

    @classmethod
    def of(cls, project: Project, table: Sink | Table | None) -> Samples:
        """For the rows of a sink or of an entry of `tables`, with the project's key."""
        return cls(keys=tuple(getattr(table, "keys", ())), hash_key=project.sample_hash_key)

    def shown(self, rows: Iterable[Row], config: CheckConfig, identifying: Iterable[str] = ()) -> tuple[Row, ...]:
        """The rows as they may be shown, in their order; a row of which nothing is left is left out.

        Args:
            rows: column → value.
            config: the `samples` and `never_show` that hold for them.
            identifying: further columns that say which row or group it is, such as the key of a key check.

        Raises:
            ReconError: the key of `samples: hash` cannot be read.
        """
        named = {_bare(name) for name in (*self.keys, *identifying)}
        never = frozenset(_bare(name) for name in config.never_show)
        concealed = (self._concealed(row, config.samples, named) for row in rows)
        return tuple(row for row in (_without(row, never) for row in concealed) if row)

    def _concealed(self, row: Row, policy: SamplesPolicy, identifying: Collection[str]) -> Row:
        if policy == "none":
            return {}
        if policy == "full":
            return row
        kept = {name: value for name, value in row.items() if self._is_position(name)}
        if policy == "keys":
            return {name: value for name, value in row.items() if name in kept or _bare(name) in identifying}
        return {name: value if name in kept or value is None else self._hash(value) for name, value in row.items()}

    def _is_position(self, name: str) -> bool:
        return name in _POSITION or (name in _COUNTS and name not in self.columns)

    @cached_property
    def _key(self) -> bytes:
        return self.hash_key()

    def _hash(self, value: Any) -> str:
        text = json.dumps(plain(value), sort_keys=True, default=str)
        return "hash:" + hmac.digest(self._key, text.encode(), hashlib.sha256).hex()[:_HASH_DIGITS]


def strictest(configs: Iterable[CheckConfig], never_show: Iterable[str]) -> CheckConfig:
    """A config that shows no more than any of these does, and none of the named columns."""
    from recon.project import CheckConfig

    policy = min((config.samples for config in configs), key=POLICIES.index)
    return CheckConfig(samples=policy, never_show=tuple(never_show))


def without_values(text: str, config: CheckConfig) -> str:
    r"""An error's message without the values of rows that it quotes, unless `samples: full` lets it quote them.

    >>> from recon.project import CheckConfig
    >>> without_values("[CAST_INVALID_INPUT] The value 'ada' of the type \"STRING\"", CheckConfig())
    '[CAST_INVALID_INPUT] The value *** of the type "STRING"'
    """
    if config.samples == "full" and not config.never_show:
        return text
    return _QUOTED_VALUE.sub(HIDDEN, text)


def _without(value: Any, never: Collection[str]) -> Any:
    """The value with the columns of `never_show` masked, also as fields of a struct, whichever case they have."""
    if not never:
        return value
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if each is not None and _is_one(str(name), never) else _without(each, never)
            for name, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without(each, never) for each in value]
    return value


def _bare(name: str) -> str:
    """A column's name in lower case and without backticks, however it is written."""
    return name.casefold().replace("`", "")


def _is_one(name: str, never: Collection[str]) -> bool:
    """Whether a column is one of these, or a field of one; a comparison calls the other side's `a in ref('b')`."""
    parts = _bare(name).split(" in ")[0].split(".")
    return any(".".join(parts[a:b]) in never for a in range(len(parts)) for b in range(a + 1, len(parts) + 1))
