"""Which tests `make test` leaves to `make soak`."""

from __future__ import annotations

from typing import Any

import pytest


def long(*values: Any) -> list[Any]:
    """Parameters with which a test is a variant of itself: `make soak` runs it with these, `make test` with the others.

    A tuple is one value of several parameters.
    """
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long) for value in values
    ]
