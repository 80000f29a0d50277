"""docs/coming_from.md names checks, config and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from recon.checks.registry import names
from recon.cli.app import app
from recon.convert import gx
from recon.convert.dbt.packages import COUNTERPARTS
from recon.project import CheckConfig

PAGE = (Path(__file__).parents[3] / "docs" / "coming_from.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith("|---")
]
SHOWN = [row for row in ROWS if row[2] != "what differs"]
_OF_DBT = (
    *("unique", "not_null", "accepted_values", "relationships", "unique_combination_of_columns", "expression_is_true"),
    *("accepted_range", "not_null_proportion", "not_constant", "not_empty_string", "at_least_one", "freshness"),
    *("cardinality_equality", "equal_rowcount", "fewer_rows_than", "equality", "recency", "sequential_values"),
    "mutually_exclusive_ranges",
)


def test_every_name_of_recon_exists() -> None:
    commands = {f"recon {name}" for name in typer.main.get_command(app).commands}
    known = {*names(), *CheckConfig.model_fields, "data_tests/", "data_tests/generic/"}
    mapped = [(row[0], name) for row in SHOWN for name in re.findall(r"`([^`]+)`", row[1])]
    assert len(mapped) > 100
    unknown = [
        (theirs, name) for theirs, name in mapped if name not in known and " ".join(name.split()[:2]) not in commands
    ]
    assert unknown == []


def test_every_check_of_dbt_and_each_counterpart_in_gx_is_on_the_page() -> None:
    # dbt's own page is complete: every check on rows that has dbt's name stands in its table.
    table = PAGE.split("## dbt\n")[1].split("## Great")[0]
    assert set(_OF_DBT) <= set(names())
    assert [name for name in _OF_DBT if f"`{name}`" not in table] == []
    theirs = PAGE.split("## Great")[1].split("## Soda")[0]
    exported = set(gx.COUNTERPARTS) - {"expectation_suite"}
    assert [name for name in exported if f"`{name}`" not in theirs] == []
    of_packages = [name if name.startswith("dbt_utils.") else name.partition(".")[2] for name in COUNTERPARTS]
    assert [name for name in of_packages if f"`{name}`" not in table] == []


def test_links_lead_somewhere() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert [target for target in re.findall(r"\]\(([^)#]+)", PAGE) if not (docs / target).exists()] == []
