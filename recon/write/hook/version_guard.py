"""What a hook carries when Spark Connect sends it to the server: the version of recon that made it."""

from __future__ import annotations

from typing import Any

from recon._version import __version__
from recon.base.errors import ConfigError


class Sent:
    """A hook that is pickled. What unpickles it has the same recon, or says so before anything else of it is read."""

    def __getstate__(self) -> dict[str, Any]:
        return {"made_by": _MadeBy(), **self.__dict__}


class _MadeBy:
    def __reduce__(self) -> tuple[Any, ...]:
        return _require_same, (__version__,)


def _require_same(made_by: str) -> _MadeBy:
    """Refuses what another version of recon made.

    Raises:
        ConfigError: this process has another version.
    """
    if made_by != __version__:
        raise ConfigError(
            f"the client of Spark Connect has recon {made_by}, and the server's Python has recon {__version__}; "
            "install the same version on both, then start the query again"
        )
    return _MadeBy()
