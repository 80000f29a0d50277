"""A finished run in the forms that other programs read: findings as a table, JUnit, Markdown, annotations.

`writing` lists them in `FORMS`; its `text` and `write` are all that other rooms use. `findings` makes a row of each
finding; `junit`, `markdown` and `annotations` write one form each. As the reports above, they see a `RunResult` only.
"""

from __future__ import annotations

from recon.reports.forms.writing import FORMS, text, write

__all__ = ["FORMS", "text", "write"]
