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

from tests.support.advice import LOOKS, Step, steps  # noqa: E402

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
    "recon/judge/patterns/": "likely causes: tests/cases/test_patterns.py makes two of them on real parts and follows "
    "what they say by hand; of the others nobody followed what they say",
    "recon/project/": _ENDS,
    "recon/spark/": _ENDS,
    "recon/testing/": _ENDS,
    "recon/witness/": "a witness that cannot be read, which is never a pass: it is brought back, and audited again",
}

# Steps of findings and of repairs that no test follows yet, with the reason.
NOT_YET: Mapping[str, Sequence[str]] = {
    "no step: words of SQL, of a pattern, or of what happened": (
        "read … of aborted transactions…",
        "read …, …",
        "read from data files",
        "WRITE|CREATE TABLE( AS SELECT)?|OPTIMIZE|VACUUM",
        "START|END)|(UN)?SET TBLPROPERTIES|UPGRADE PROTOCOL|ADD",
        "open are …",
        "or decide with `recon accept \\1`\\))+$",
        "CREATE TABLE r",
        "read by an entry behind the last audit",
        "or left it out, which `recon audit` tells",
        "or put back to an earlier state",
        "and read it again",
        "and write",
        "or run",
        "begin …",
    ),
    "a part of a step whose other part is followed": (
        "Stop the query",
        "repair it",
        "decide with `recon accept …`",
        "and read the range again",
        "then accept the finding",
        "`recon accept …` where it may stay",
        "remove one of them…",
        "else read exactly this range once more",
        "read exactly these … once more",
        "and read their ranges once more",
        "and accept this if the topic is the same",
        "`recon audit --full` names their offsets",
        "`recon audit --full` names the offsets that lack their row",
        "…`recon audit --full` names their offsets, so that they can be read again",
        "`recon audit --full` looks whether the sink has them",
        "`recon audit --full` looks at the rows of all micro-batches",
        "`recon audit --full` names the micro-batches that the ledger has",
        "run an audit",
        "run `recon audit`",
    ),
    "it changes what is written from now on, and nothing of what the finding is about": (
        "let the query write one micro-batch through the hook",
        "let `recon observe --every 60s` run beside the stream",
        "or `recon observe`, enters it",
        "or keep the log longer",
        "correct the producer",
        "read faster",
        "or let the topic keep them longer",
        "`recon advise` names what would help",
        "set withWatermark on its event time",
        "give each pipeline a table of its own",
        "add recon.ProgressListener to the session",
        "keep Kafka's partition",
        "or write with recon's hook",
        "let one pipeline write this topic",
        "and open the stream with recon.read_kafka",
        "let the hook reach the broker",
        "make sure that only one of them runs",
    ),
    "recon.yml is corrected, and the audit repeated": (
        "correct the sink's target in recon.yml",
        "correct the pipeline's source",
        "name the very folder that it reads",
        "correct the pipeline's checkpoint",
        "correct `ledger` or `checkpoint` in recon.yml",
        "add it, with the broker's security settings",
        "name one with --sink",
        "name a newer one",
        "give another period",
        "give --from",
        "write TOPIC/PARTITION/OFFSET, such as orders/3/18442",
    ),
    "a copy is put back, which the model has for checkpoint, table and ledger alone": (
        "or restore the table",
        "restore the files from a copy",
        "put it back, by its name",
        "and restore it from a copy",
        "or restore it",
        "restore the checkpoint",
        "and restore the table that was there",
        "restore the table from a backup",
        "or move it away",
        "and run `recon ledger rebuild`",
        "restore the row",
        "remove it",
    ),
    "it rests on a sink, a source or a function of the user's own that the model does not have": (
        "then read exactly this range once more into that sink",
        "else run `recon ledger rebuild`",
        "remove txn_app_id from the sink",
        "give the function a new txnAppId, in recon.yml, too, after an audit has looked once more",
        "or read the topic again on a new checkpoint",
        "and write them again",
        "move them elsewhere",
        "read up to log entry …",
        "write it to the folder under a new name",
        "and read … from before … of query …",
        "read the table as a whole once more",
        "finish it with `…`",
        "read exactly its ranges once more through the hook",
        "read exactly its ranges once more",
        "and correct the rows",
        "and read the offsets again from where the logs differ",
        "read the ranges once more through the hook",
        "correct the rows by hand",
    ),
    "a repair that refuses, or was interrupted: tests/cases/test_repair.py makes both, not by the printed words": (
        "give the repair a transform that does all that the query does between Kafka",
        "give the query's transform",
        "give the query's own",
        "put its route back into recon.yml for the repair",
        "repair with the routes of that time",
        "repair the findings that name what it took away, audit",
        "run it again while the query is stopped",
        "remove them by hand",
        "restart that, or, where its checkpoint is gone, let another query of the sink complete a micro-batch",
        "run the repair again",
        "run the same command again",
    ),
    "an answer of `recon offsets` or `recon explain` for a source or a table of another kind": (
        "set startingOffsets to what `…` prints",
        "then read it again with `recon repair`",
        'or begin with startingOffsets "earliest" or "latest',
        'begin with startingOffsets "earliest" or "latest',
        "take their ends from the newest file in `offsets` of its checkpoint, a line for each source",
        "and set startingOffsets per source",
        "let the query go on with its checkpoint",
        "begin as the query did, with no option",
        "let the query go on with its checkpoint until it has read the version",
        "take their ends from `recon ledger show --pipeline … --output json` and set startingOffsets per source",
        "then read what is gone again with `recon repair`",
        "then read them again with `recon repair`",
    ),
}


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
    lines += ["", "## Steps that no test follows yet", "", "| step | why |", "| --- | --- |"]
    lines += [f"| {_cell(text)} | {why} |" for why, texts in NOT_YET.items() for text in texts]
    lines += ["", "Those of these rooms:", "", "| room | why |", "| --- | --- |"]
    lines += [f"| {room} | {why} |" for room, why in ROOMS.items() if why]
    lines += ["", f"Steps that only look change nothing: {', '.join(sorted(LOOKS))}."]
    return _TITLE + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _files(files: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(files))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
