"""Heavy libraries, imported when a name of theirs is first used, so that importing recon stays fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """Stands for a module, and imports it when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_exports(
    package: str, names: Iterable[str], places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, for names that are imported when first used.

    Args:
        package: its `__name__`.
        names: its `__all__`.
        places: each public name's module, or `module:name` where it has another name there.
    """

    def getattr_(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, inside = places[name].partition(":")
        return getattr(import_module(module), inside or name)

    return getattr_, lambda: sorted(names)


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    np, pa, pc = LazyModule("numpy"), LazyModule("pyarrow"), LazyModule("pyarrow.compute")

__all__ = ["LazyModule", "lazy_exports", "np", "pa", "pc"]
