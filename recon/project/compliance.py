"""`compliance:` of recon.yml: the frameworks of the compliance report, and the project's own wording of controls."""

from __future__ import annotations

from pydantic import Field

from recon.project.fields import Strict


class Compliance(Strict):
    """What the compliance report says, and of which frameworks.

    `controls` is a YAML file with wording of the project's own. `frameworks` are the names of those that the report
    has, in this order; by default all that recon brings, and all of the file. `line` is that of `frameworks` in
    recon.yml.
    """

    controls: str | None = None
    frameworks: tuple[str, ...] | None = Field(default=None)
    line: int | None = None
