"""Write the table of docs/telemetry.md from the definitions of the metrics; `python scripts/telemetry_page.py`."""

from __future__ import annotations

import re
from pathlib import Path

from recon.events.exporters.metrics import METRICS

PAGE = Path(__file__).parents[1] / "docs" / "telemetry.md"
_TABLE = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- end of metrics -->)", re.DOTALL)


def page() -> str:
    """The page with its table as it should be."""
    rows = ["| metric | kind | labels | what it says |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return _TABLE.sub(lambda _: "\n".join(rows) + "\n", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
