"""Write the table of docs/sinks.md from what the sinks promise; `python scripts/sinks_page.py`."""

from __future__ import annotations

import re
from pathlib import Path

from recon.project.guarantees import guarantees

PAGE = Path(__file__).parents[1] / "docs" / "sinks.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)


def page() -> str:
    """The page with its table as it should be."""
    rows = ["| kind | guarantee | how | what it needs |", "|---|---|---|---|"]
    rows += [f"| `{kind}` | {p.label} | {p.how} | {p.needs} |" for kind, p in guarantees()]
    return _TABLE.sub("\n".join(rows) + "\n", PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(page())
