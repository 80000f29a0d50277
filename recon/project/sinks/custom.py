"""The sink of kind `custom`: the user's own function."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

from pydantic import field_validator
from typing_extensions import override

from recon.project.messages import BadValue
from recon.project.sinks.base import Guarantee, Sink


class CustomSink(Sink):
    """Writes by your own function, `write(frame, batch)`.

    `write`, `confirm`, `read`: functions as `package.module:function`, or given to `foreach_batch`. `declares`: what
    you declare that a retry does; without `confirm` nobody can hold the sink to it. `target`: its name in reports.
    """

    writer = "recon.write.sinks.custom:CustomWriter"
    in_files = False
    takes_functions = True

    kind: Literal["custom"]
    target: str = ""
    declares: Literal["exactly-once", "exactly-once within one checkpoint", "at-least-once", "at-most-once"] = (
        "at-least-once"
    )
    write: str | Callable[..., Any] | None = None
    confirm: str | Callable[..., Any] | None = None
    read: str | Callable[..., Any] | None = None

    @field_validator("write", "confirm", "read")
    @classmethod
    def _function(cls, value: Any) -> Any:
        if isinstance(value, str) and not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", value):
            raise BadValue("must name a function as package.module:function", show_value=True)
        return value

    @property
    @override
    def promise(self) -> Guarantee:
        confirmed = "and confirmed by your function" if self.confirm else "not confirmed"
        return Guarantee(
            label=self.declares,
            how=f"declared by you, {confirmed}; recon skips what the ledger knows",
            needs="a function that keeps what is declared when it gets the same micro-batch again",
        )
