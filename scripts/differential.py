"""What this tree's judge says otherwise than another commit's, of the same histories and stories of tests/truth.

    python -m scripts.differential COMMIT [HISTORIES [FIRST]]

The commit's tree is put into build/differential. Differences are listed by what either says; `whole` is what happened:
"complete" may be said of no other history. The exit code is 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_SHOWN = 3  # examples of each kind of difference


def tree_of(commit: str) -> Path:
    """The files of a commit, in a folder of its own."""
    found = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if found.returncode:
        raise SystemExit(f"there is no commit {commit!r} in this repository; `git log` lists them")
    tree = ROOT / "build" / "differential" / found.stdout.strip()[:12]
    if not tree.exists():
        archive = subprocess.run(
            ["git", "archive", commit, "recon", "tests", "docs", "pyproject.toml"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        tree.mkdir(parents=True)
        subprocess.run(["tar", "-xf", "-"], cwd=tree, input=archive.stdout, check=True)
    return tree


def answers_of(trees: tuple[Path, Path], *arguments: str) -> list[list[dict[str, Any]]]:
    """The answers of both trees' judges, at the same time."""
    running = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "answers.py"), *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for tree in trees
    ]
    told = [process.communicate()[0] for process in running]
    failed = [str(tree) for tree, process in zip(trees, running, strict=True) if process.returncode]
    if failed:
        raise SystemExit(f"the judge of {', '.join(failed)} failed; its error stands above")
    return [[json.loads(line) for line in lines.splitlines()] for lines in told]


def _kind(old: dict[str, Any], new: dict[str, Any]) -> str:
    """A difference in a line: the answers, and what only one of them found."""
    first, second = ({tuple(f) for f in line["found"]} for line in (old, new))
    only = [", ".join(sorted({f[0] for f in these})) or "nothing" for these in (first - second, second - first)]
    said = old["answer"] if old["answer"] == new["answer"] else f"{old['answer']} -> {new['answer']}"
    return f"{said}; whole: {old['whole']}; only before: {only[0]}; only now: {only[1]}"


def main() -> int:
    """Print the differences."""
    parser = argparse.ArgumentParser(prog="python -m scripts.differential")
    parser.add_argument("commit")
    parser.add_argument("histories", nargs="?", type=int, default=2000)
    parser.add_argument("first", nargs="?", type=int, default=0)
    asked = parser.parse_args()
    trees = tree_of(asked.commit), ROOT
    differences: defaultdict[str, list[Any]] = defaultdict(list)
    compared = 0
    for arguments in (("stories",), ("histories", str(asked.first), str(asked.histories))):
        before, now = ({told["name"]: told for told in answers} for answers in answers_of(trees, *arguments))
        for names, tree in ((before.keys() - now.keys(), "the commit"), (now.keys() - before.keys(), "this tree")):
            if names:
                print(f"not compared, of {tree} alone: {', '.join(sorted(map(str, names)))}")  # noqa: T201
        for name in before.keys() & now.keys():
            compared += 1
            if any(before[name][what] != now[name][what] for what in ("answer", "found")):
                differences[_kind(before[name], now[name])].append(name)
    for kind, names in sorted(differences.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):6} {kind}: {', '.join(map(str, names[:_SHOWN]))}")  # noqa: T201
    print(f"{compared:,} histories and stories compared, {sum(map(len, differences.values())):,} differ")  # noqa: T201
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
