"""Write the table of the steps that messages name and the tests that follow them; `python scripts/advice_page.py`.

tests/advice.md is generated: the steps are found in recon's code (`steps` of tests/support/advice.py), the tests by
their marks (`@pytest.mark.advice("put it back from a copy")`). A step that no test follows is listed with the reason.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.advice import Step, steps  # noqa: E402

PAGE = ROOT / "tests" / "advice.md"
_TITLE = """# The steps that messages name, and the tests that follow them

`python scripts/advice_page.py` writes this. `…` stands for what the code puts in. A test takes the step from what was
printed, does it, and audits again: the answer is better, or what stays open was said before.

"""

_ENDS = "the command ends with it, and nothing was written: what it asks for is given, and the command is run again"
_CHECK = "an error of a check of rows, which changes nothing: recon.yml or the table is corrected"
_WRITE = "the query or the command stops with it, and nothing was written; tests/crash starts stopped queries again"
_FORM = "a note in a report or of a converter, on a setting"

# Modules whose steps no test follows yet, with the reason; the first that fits.
ROOMS: Mapping[str, str] = {
    "recon/write/hook/": _WRITE,
    "recon/write/sinks/": _WRITE,
    "recon/write/quarantine/": _WRITE,
    "recon/write/ledger/": _WRITE,
    "recon/write/streams/": _FORM,
    "recon/write/observer/": _ENDS,
    "recon/checks/evidence/": "",
    "recon/checks/": _CHECK,
    "recon/convert/": _FORM,
    "recon/reports/": _FORM,
    "recon/events/": _ENDS,
    "recon/audits/": _ENDS,
    "recon/base/": _ENDS,
    "recon/cli/": _ENDS,
    "recon/local/": _ENDS,
    "recon/project/": _ENDS,
    "recon/spark/": _ENDS,
    "recon/testing/": _ENDS,
    "recon/witness/": "a witness that cannot be read, which is never a pass: it is brought back, and audited again",
}

# Steps of findings and of repairs that no test follows yet, with the reason.
NOT_YET: Mapping[str, Sequence[str]] = {}


def followed() -> Mapping[str, Sequence[str]]:
    """The tests that follow each step, as links of the page."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if "mark.advice" in (text := file.read_text(encoding="utf-8")):
            for name, step in _marked(ast.parse(text)):
                found[step].append(f"[{name}]({file.relative_to(PAGE.parent)})")
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(test, step) of the marks of a module; a step may be a constant of it."""
    texts = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }
    for node in tree.body:
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.advice":
                for given in mark.args:
                    yield node.name, texts[given.id] if isinstance(given, ast.Name) else ast.literal_eval(given)


def reason(step: Step) -> str:
    """Why no test follows a step; "" where one must."""
    listed = next((why for why, texts in NOT_YET.items() if step.text in texts), "")
    return listed or next((why for room, why in ROOMS.items() if step.file.startswith(room)), "")


def without_test() -> list[Step]:
    """The steps that change something, that no test follows and that are not listed."""
    tests = followed()
    return [step for step in steps() if step.text not in tests and not step.looks_only and not reason(step)]


def page() -> str:
    """tests/advice.md as it should be."""
    tests, where = followed(), defaultdict(list)
    for step in steps():
        where[step.text].append(step.file)
    lines = ["| step | printed by | test |", "| --- | --- | --- |"]
    lines += [f"| {_cell(text)} | {_files(where[text])} | {', '.join(tests[text])} |" for text in sorted(tests)]
    lines += ["", "## Steps that only look", "", "They change nothing.", "", "| step | printed by |", "| --- | --- |"]
    lines += [f"| {_cell(s.text)} | {s.file} |" for s in steps() if s.looks_only and s.text not in tests]
    lines += ["", "## Steps that no test follows yet", "", "| step | printed by | why |", "| --- | --- | --- |"]
    lines += [
        f"| {_cell(s.text)} | {s.file} | {reason(s)} |" for s in steps() if not s.looks_only and s.text not in tests
    ]
    return _TITLE + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _files(files: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(files))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
