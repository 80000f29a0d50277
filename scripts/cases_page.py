"""Write the catalogue of fault cases and the two tables of docs/verdicts.md; `python scripts/cases_page.py`.

The catalogue, tests/cases/catalogue.md, is of the tests on real parts. Codes and tests come from their marks
(`@pytest.mark.case(41, "GAP")`), answers from the last run of each (tests/cases/.results.json). A test that was not run
here keeps the answer that the catalogue has. Where a story of tests/truth stands for the test of a case, as other tests
on real parts find its codes in a sink of the same kind, the catalogue names the story and those tests. The page's first
table is the catalogue without the tests.

The second is of the stories of tests/truth, which the script itself has the judge answer.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "verdicts.md"
CATALOGUE = ROOT / "tests" / "cases" / "catalogue.md"
OUTCOMES = ROOT / "tests" / "cases" / ".results.json"
_FOLDERS = ("cases", "crash", "kafka", "spark")
Verdict = tuple[str, int, tuple[str, ...]]  # a test's name, the case, the codes
_TABLE = re.compile(r"(?<=<!-- cases -->\n).*?(?=<!-- /cases -->)", re.DOTALL)
_STORIES = re.compile(r"(?<=<!-- stories -->\n).*?(?=<!-- /stories -->)", re.DOTALL)
TEST = re.compile(r"\[(\w+)\]\(\.\./\.\./([\w/.]+)\)")
_TITLE = """# The fault cases and their tests

`python scripts/cases_page.py` writes this; docs/verdicts.md shows it to users, without the tests.

"""

CASES: Mapping[int, str] = {
    1: "ranges join, and rows add up",
    2: "a range was skipped, and Kafka still holds it",
    3: "a range was skipped, and retention has passed a part of it",
    4: "a range was read again, with its rows doubled or trimmed",
    5: "a partition was added, and read from offset 0 or from above it",
    6: "a topic was deleted, after it was read to its end or before",
    7: "a micro-batch read nothing",
    8: "a range holds only a transaction marker",
    9: "committed transactions",
    10: "aborted transactions, read_committed",
    11: "aborted transactions, read_uncommitted",
    12: "a transaction is open",
    13: "records were compacted before they were read",
    14: "records were compacted after they were read",
    15: "rows were dropped: by the transform, which is recorded, or before the hook",
    16: "records were deleted while the micro-batch was read, failOnDataLoss=false",
    17: "a topic was made anew and is shorter than what was read",
    18: "a topic was made anew and filled beyond what was read",
    19: "the leader epoch changed, and the new leader's log was cut off",
    20: "one offset holds no record",
    21: "a micro-batch was planned and not finished: a moment ago, long ago, and Kafka deleted its records",
    22: "killed between the data commit and the ledger entry",
    23: "killed before Spark's own commit, and tried again",
    24: "a micro-batch was committed to the table twice",
    25: "killed after the write into a database, with recon's own table and without",
    26: "killed after the write into files or a topic, which a retry replaces or appends to",
    27: "the user's function swallowed an error",
    28: "a MERGE that matched nothing; an entry without a commit",
    29: "the checkpoint was lost, and the topic read again from the start",
    30: "the checkpoint was lost under a fixed app id",
    31: "the checkpoint's offsets and commits were deleted, under a fixed app id or recon's own",
    32: "a new checkpoint began at latest",
    33: "another write took the app id and version of a micro-batch; txn settings that the session still had; "
    "a second hook of the sink in one function",
    34: "two checkpoints wrote into one sink",
    35: "a retry returned other rows",
    36: "records are not read yet",
    37: "OPTIMIZE; a MERGE that copies rows; metrics that count rows twice",
    38: "RESTORE, DELETE or overwrite of audited rows",
    39: "VACUUM, a cleaned log, purged checkpoint files, a new column",
    40: "a ledger entry was edited or deleted",
    41: "the first micro-batch was swallowed",
    42: "recon was added to a query that already wrote",
    43: "two pipelines append one topic into one table",
    44: "another pipeline's MERGE changed our rows",
    45: "recon.yml says read_committed, and the query reads uncommitted",
    46: "a row was lost, and its record compacted: after an audit, or before the first one",
    47: "a third epoch read again what the second one read, audited day by day",
    48: "the table was dropped and made anew",
    49: "rows of the table were inserted into it once more; rows that are no records were inserted",
    50: "a commit without an entry: undone by RESTORE, with lost rows, or of a foreign checkpoint",
    51: "the ledger was put back from an older copy",
    52: "a transaction was open at the first audit, and aborted before the second",
    53: "a bounded audit of a time whose micro-batches were swallowed",
    54: "a gap that nobody repaired, audited again on later days, and accepted",
    55: "an audit whose end lay in the future, and a loss after it",
    56: "a sink got its checks later",
    57: "a loss and an open question in one check, of which the loss is accepted first",
    58: "a commit's metrics count as many rows as were read, and its files hold fewer",
    59: "a transform lost one row and doubled another",
    60: "the sink lost rows that the transform had returned",
    61: "one micro-batch was written twice: one entry and two commits, or two entries",
    62: "the topic's id was unknown at first, and the topic made anew and filled again",
    63: "an unclean leader election cut off the log, and producers filled it again beyond what was read",
    64: "the checkpoint is an older copy than the ledger",
    65: "Kafka deleted half the input of an aggregate before Spark read it",
    66: "more findings than are listed",
    67: "the ledger's chain was rewritten whole, or its end cut off",
    68: "a sink or a pipeline was renamed, and the old chain cut",
    69: "the driver's clock is behind, and a row is lost",
    70: "a partition dropped out of the query's plans",
    71: "explode() of empty lists over a topic with transactions",
    72: "a gap was repaired by reading that range again",
    73: "two epochs, and audits of a period or to a future time",
    74: "a marker at the start of a range, audited before and after retention, or after it alone",
    75: "retention after two epochs",
    76: "Spark did not report its counts, and a filter seldom acts",
    77: "two sources of one query read one topic",
    78: "the first epoch began above offset 0, and the next one below",
    79: "an entry is missing, and its commit is there",
    80: "a skipped range holds only a marker",
    81: "an audit runs between a commit and its entry",
    82: "a period that begins long before the table's log",
    83: "a filter drops rows, and one more row is lost",
    84: "a data file of the table was removed from the store",
    85: "DELETE and VACUUM, and the log cleaned up behind a checkpoint",
    86: "two pipelines write two topics into one table, and a row of one is deleted",
    87: "the table's folder was removed, and the query restarted",
    88: "restored entries, and an audit of the time of their commits",
    89: "a ledger entry was edited so that it covers a gap",
    90: "a topic was made anew: `recon offsets` and `recon explain` speak of the new one",
}

# Cases that no test makes on real parts: why, and where they are tested.
ELSEWHERE: Mapping[int, str] = {}


@dataclass(frozen=True)
class Marked:
    """A test that makes a case.

    Attributes:
        xfail: why recon does not answer as it should; "" where it does.
        answer: the answer that the mark names; "" where the run tells it.
    """

    case: int
    codes: tuple[str, ...]
    name: str
    file: str
    xfail: str
    answer: str

    @property
    def link(self) -> str:
        """The test, as the catalogue names it."""
        return f"[{self.name}](../../{self.file})"


@dataclass(frozen=True)
class Told:
    """A story of the model that stands for the test of a case.

    Attributes:
        answer: what recon's own code answers now.
        real: the tests on real parts that find its codes, in a sink of the same kind.
    """

    case: int
    codes: tuple[str, ...]
    name: str
    answer: str
    real: tuple[Marked, ...]

    @property
    def link(self) -> str:
        """The story, as the catalogue names it, and the tests on real parts."""
        found = " and ".join(test.link for test in self.real)
        return f"a story: [{self.name}](../../tests/truth/stories.py), its codes on real parts: {found}"


def marked() -> list[Marked]:
    """Every test that is marked with a case, by case."""
    files = sorted(file for folder in _FOLDERS for file in (ROOT / "tests" / folder).glob("test_*.py"))
    return sorted((mark for file in files for mark in _in_file(file)), key=lambda mark: mark.case)


def standing_in(tests: Sequence[Marked]) -> list[Told]:
    """Every story that stands for the test of a case, by case."""
    found = []
    for name, story in sorted(_all_stories().items(), key=lambda named: named[1].case):
        if story.real:
            real = tuple(next(test for test in tests if test.name == of_test) for of_test in story.real)
            codes = (*story.explained, *story.codes)
            found.append(Told(story.case, codes, name.partition("-")[2], _judged(name).facts.says, real))
    return found


@cache
def _judged(story: str) -> Any:
    """What recon's own code says at the end of a story."""
    _, judgement = _all_stories()[story].story()
    return judgement


def _all_stories() -> Mapping[str, Any]:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    stories: Mapping[str, Any] = importlib.import_module("tests.truth.stories").STORIES
    return stories


def _in_file(file: Path) -> Iterator[Marked]:
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        marks = [(_mark(call), call) for call in node.decorator_list if isinstance(call, ast.Call)]
        xfail = next((_given(call, "reason") for name, call in marks if name == "xfail"), "")
        for name, call in marks:
            if name == "case":
                number, *codes = [ast.literal_eval(argument) for argument in call.args]
                yield Marked(
                    number, tuple(codes), node.name, str(file.relative_to(ROOT)), xfail, _given(call, "answer")
                )


def _mark(call: ast.Call) -> str:
    """The name of a pytest mark; "" for another decorator."""
    text = ast.unparse(call.func)
    return text.removeprefix("pytest.mark.") if text.startswith("pytest.mark.") else ""


def _given(mark: ast.Call, argument: str) -> str:
    """A keyword argument of a mark; "" where it is not given."""
    return next((ast.literal_eval(keyword.value) for keyword in mark.keywords if keyword.arg == argument), "")


def found() -> dict[Verdict, str]:
    """What recon answered, by test, case and codes, in the last run of each test here."""
    answers: dict[Verdict, list[str]] = {}
    for node, cases in (json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}).items():
        name = node.partition("::")[2].partition("[")[0]
        for case in cases:
            told = answers.setdefault((name, case["case"], tuple(case["codes"])), [])
            if case["answer"] not in told:
                told.append(case["answer"])
    return {key: " or ".join(told) for key, told in answers.items()}


def shown() -> dict[Verdict, str]:
    """The answers that the catalogue has now."""
    answers = {}
    for line in CATALOGUE.read_text(encoding="utf-8").removeprefix(_TITLE).splitlines()[2:]:
        _, case, _, codes, answer, tests, _ = line.split("|")
        for name, _ in TEST.findall(tests):
            answers[name, int(case), tuple(re.findall(r"\w+", codes))] = answer.strip()
    return answers


def table(tests: Sequence[Marked], answers: Mapping[Verdict, str]) -> str:
    """The table: a line for each case and each of its verdicts."""
    lines = ["| # | what happens | codes | answer | test |", "| --- | --- | --- | --- | --- |"]
    by_story = standing_in(tests)
    for case, what in CASES.items():
        verdicts: dict[tuple[str, str], list[str]] = {}
        for test in tests:
            if test.case == case:
                answer = answers.get((test.name, case, test.codes)) or test.answer or "not run yet"
                if test.xfail:
                    answer = f"not so yet: {test.xfail}"
                verdicts.setdefault((_listed(test.codes), answer), []).append(test.link)
        for story in by_story:
            if story.case == case:
                verdicts.setdefault((_listed(story.codes), story.answer), []).append(story.link)
        if case in ELSEWHERE:
            verdicts["", ELSEWHERE[case]] = []
        for (codes, answer), links in verdicts.items():
            lines.append(f"| {case} | {what} | {codes} | {answer} | {', '.join(links)} |")
    return "\n".join(lines) + "\n"


def _listed(codes: Sequence[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def stories() -> str:
    """The table of the stories that the model has: a line for each case and each of its verdicts."""
    verdicts: dict[tuple[int, str, str], list[str]] = {}
    for name, told in sorted(_all_stories().items(), key=lambda named: named[1].case):
        judgement = _judged(name)
        verdict = (told.case, _listed(sorted(judgement.codes)), judgement.facts.says)
        verdicts.setdefault(verdict, []).append(told.story.__name__.replace("_", " "))
    lines = ["| # | what happens in the model | codes | answer |", "| --- | --- | --- | --- |"]
    for (case, codes, answer), names in verdicts.items():
        lines.append(f"| {case} | {'; '.join(names)} | {codes} | {answer} |")
    return "\n".join(lines) + "\n"


def catalogue(*, fresh: bool = False) -> str:
    """The catalogue as it should be; with `fresh`, answers of the last run here take the place of its own."""
    return _TITLE + table(marked(), shown() | (found() if fresh else {}))


def page(*, fresh: bool = False) -> str:
    """docs/verdicts.md as it should be; with `fresh`, the judge answers the stories of the model anew."""
    of_users = (line.rpartition(" | ")[0] + " |" for line in catalogue().removeprefix(_TITLE).splitlines())
    text = _TABLE.sub(lambda _: "\n".join(dict.fromkeys(of_users)) + "\n", PAGE.read_text(encoding="utf-8"))
    return _STORIES.sub(lambda _: stories(), text) if fresh else text


if __name__ == "__main__":
    CATALOGUE.write_text(catalogue(fresh=True), encoding="utf-8")
    PAGE.write_text(page(fresh=True), encoding="utf-8")
