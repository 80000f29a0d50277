"""The packages that recon needs and their versions, as its installed metadata has them from pyproject.toml."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "spark-recon"


def requirements(extra: str = "") -> list[Requirement]:
    """What every installation needs, or what an extra adds; without conditions.

    Nothing where recon is imported without being installed, such as from a folder of PYTHONPATH.
    """
    from packaging.requirements import Requirement

    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    chosen = []
    for requirement in map(Requirement, lines):
        if requirement.marker.evaluate({"extra": extra}) if requirement.marker else not extra:
            requirement.marker = None
            chosen.append(requirement)
    return chosen


def how_to_install(extra: str) -> str:
    """The command that installs what an extra adds, for the end of a sentence.

    recon itself is not in it: it is installed from a clone, and no index is asked for its name.

    >>> how_to_install("prometheus")
    "pip install 'prometheus_client<1,>=0.20'"
    """
    packages = [shlex.quote(str(requirement)) for requirement in requirements(extra)]
    return (
        f"pip install {' '.join(packages)}" if packages else f"install what pyproject.toml lists as the extra {extra}"
    )
