"""What a location in recon.yml is: a path, a URI, or the name of a catalog table.

The name of a catalog table has two or three parts with dots between them, each an identifier or a text in backticks,
and nothing beside recon.yml has that name. `orders.parquet` is no such name, as its last part is a file format; nor is
`v1.2`, whose part `2` is a number.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from recon.base.credentials import HIDDEN, has_user_info, hidden
from recon.base.errors import ConfigError
from recon.base.storage import CATALOG, DBFS, Storage, dbfs_is_mounted

_PART = r"(?:`(?:[^`]|``)+`|(?=\w*[^\W\d])\w+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART}){{1,2}}")
_IN_BACKTICKS = re.compile(r"`(?:[^`]|``)+`")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:/")  # pathlib takes one slash of two away
_FILES = re.compile(r".*\.(avro|csv|delta|json|jsonl|ndjson|orc|parquet|txt)", re.IGNORECASE)


def is_uri(location: str) -> bool:
    """Whether a location is passed on as it is: `s3a://…`, `file:/…`, `dbfs:/…`."""
    return "://" in location or location.startswith(("file:", DBFS, CATALOG)) or bool(_SCHEME.match(location))


def catalog_name(location: str, project_dir: Path) -> str | None:
    """The name of a catalog table that a location of recon.yml is; None for a path or a URI.

    >>> catalog_name("main.sales.orders", Path("/nowhere"))
    'main.sales.orders'
    >>> [catalog_name(text, Path("/nowhere")) for text in ("lake/orders", "orders", "./a.b", "orders.parquet", "v1.2")]
    [None, None, None, None, None]
    """
    name = location.removeprefix(CATALOG)
    if name != location or _IN_BACKTICKS.fullmatch(name):
        return name
    if not _NAME.fullmatch(name) or _FILES.fullmatch(name):
        return None
    return None if "`" not in name and os.path.lexists(project_dir / name) else name


def parts_of(name: str) -> list[str]:
    """The parts of a catalog table's name, without their backticks.

    >>> parts_of("main.`my schema`.`a``b`")
    ['main', 'my schema', 'a`b']
    """
    parts = (part[0] for part in re.finditer(rf"{_PART}", name))
    return [part[1:-1].replace("``", "`") if part.startswith("`") else part for part in parts]


def absolute(location: str, project_dir: Path) -> str:
    """A path or URI as an absolute one.

    Raises:
        ConfigError: it begins with the home of a user whom this machine does not know.
    """
    if is_uri(location):
        return location
    try:
        return str((project_dir / Path(location).expanduser()).absolute())
    except RuntimeError:
        raise ConfigError(f"{location} {_no_home()}") from None


def on_this_machine(location: str, project_dir: Path) -> Path:
    """A location as a local path.

    Raises:
        ConfigError: it is elsewhere.
    """
    local = Storage(absolute(location, project_dir)).local
    if local is None:
        raise ConfigError(f"{location} is not on this machine; write a local path")
    return local


def misplaced(location: str, project_dir: Path, *, local: bool = False, instead: str | None = None) -> str:
    """Why nothing can be read or written at a location, to follow its key; "" where nothing speaks against it.

    Args:
        location: as in recon.yml.
        project_dir: the folder of recon.yml.
        local: it must be on this machine.
        instead: why there can be no catalog table, and what to write; None where there can be one.
    """
    if location.startswith(DBFS):
        if dbfs_is_mounted():
            return ""
        other = "a local path" if local else "the URI of the store (abfss://…, s3://…, gs://…)"
        return (
            f"is {location}, which recon reads and writes by the mount /dbfs, and this machine has none; run it where "
            f"DBFS is mounted, or write {other}"
        )
    if location.startswith("~"):
        try:
            Path(location).expanduser()
        except RuntimeError:
            return f"is {location}, {_no_home()}"
    if local and is_uri(location) and not location.startswith("file:"):
        return f"is {location}, and these files are on this machine; write a local path"
    if location.lower().startswith(("s3:", "s3a:", "s3n:")) and has_user_info(location):
        return (
            f"is {hidden(location)}, with a key in it, which neither Spark nor delta-rs reads there: write "
            f"{hidden(location).replace(f'{HIDDEN}@', '')}, and give the key in storage_options: AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY: \"{{ env_var('…') }}\""
        )
    name = None if instead is None else catalog_name(location, project_dir)
    if name is None:
        return ""
    folder = "" if "`" in name else f"; a folder of this name is ./{name}"
    return f"is {name}, which reads as the name of a catalog table, and {instead}{folder}"


def _no_home() -> str:
    return "and this machine knows no such home; write the whole path"
