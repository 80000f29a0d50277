"""Who decides about rows or findings, and why: what an auditor asks of the one who did it."""

from __future__ import annotations

import getpass
import platform
from dataclasses import dataclass

from recon.base.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Who did something, and why; `reason` is None where none was given."""

    by: str
    reason: str | None = None

    @classmethod
    def of(cls, by: str | None, reason: str | None) -> Decision:
        """A decision of these texts; without `by`, of the user of the operating system.

        Raises:
            ConfigError: one of them was given, and is empty.
        """
        return cls(
            by=this_user() if by is None else stated("by", by),
            reason=None if reason is None else stated("reason", reason),
        )


def stated(name: str, text: str) -> str:
    """The text of `by` or `reason` without blanks around it.

    Raises:
        ConfigError: nothing is left, or it has bytes that are no text.
    """
    if not text.strip():
        raise ConfigError(f"{name} is empty; an auditor will ask for it")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{name} has bytes that are no UTF-8: {text!r}; write it anew")
    return text.strip()


def this_user() -> str:
    """The user and the machine of this process, as the operating system names them; nothing proves them."""
    return f"{_user()} on {platform.node() or 'a machine without a name'}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user id has no name
        return "a user without a name"


__all__ = ["Decision", "stated", "this_user"]
