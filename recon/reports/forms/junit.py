"""A run as JUnit XML, which CI servers show as tests: a suite per pipeline, a test case per check.

A check that failed is a failure, one that could not be evaluated an error; a warning passes, and its message is in
system-out. The pipeline's answer is a property of its suite.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as XML

from recon.model import CheckResult, RunResult
from recon.reports import runbook
from recon.reports.words import located

# What XML 1.0 cannot hold, not even escaped.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(run: RunResult) -> str:
    """The document, with its XML declaration."""
    root = XML.Element("testsuites", {"name": _safe(f"recon {run.project}"), **_totals(run.results, run.elapsed_time)})
    of_pipeline: dict[str | None, list[CheckResult]] = {}
    for result in run.results:
        of_pipeline.setdefault(result.pipeline, []).append(result)
    answers = {pipeline.name: pipeline for pipeline in run.pipelines}
    for name, results in of_pipeline.items():
        seconds = sum(result.execution_time for result in results)
        suite = XML.SubElement(root, "testsuite", {"name": _safe(name or run.project), **_totals(results, seconds)})
        suite.set("timestamp", f"{run.generated_at:%Y-%m-%dT%H:%M:%S}")
        if name in answers:
            properties = XML.SubElement(suite, "properties")
            for key, value in (("answer", answers[name].says), ("because", answers[name].because)):
                XML.SubElement(properties, "property", {"name": key, "value": _safe(value)})
        for result in results:
            _case(suite, result, run)
    XML.indent(root)
    return XML.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: XML.Element, result: CheckResult, run: RunResult) -> None:
    place = ".".join(part for part in (result.pipeline, result.sink, result.column) if part)
    case = XML.SubElement(
        suite,
        "testcase",
        {"name": _safe(result.name), "classname": _safe(place), "time": f"{result.execution_time:.3f}"},
    )
    runbooks = [f"what to do about it: {book}" for book in runbook.of_result(result, run)]
    details = _safe("\n".join((result.message, *_findings(result), *runbooks)))
    if result.status == "fail":
        code = next((str(f.code) for f in result.findings if f.level.name == "FAIL"), result.check)
        XML.SubElement(case, "failure", {"message": _safe(result.message), "type": code}).text = details
    elif result.status == "error":
        XML.SubElement(case, "error", {"message": _safe(result.message), "type": result.check}).text = details
    elif result.status == "skipped":
        XML.SubElement(case, "skipped", {"message": _safe(result.message)})
    elif result.status == "warn":
        XML.SubElement(case, "system-out").text = details


def _findings(result: CheckResult) -> list[str]:
    return [f"{f.code} {located(f)}: {f.message}" for f in result.findings if f.level.name != "INFO"]


def _totals(results: tuple[CheckResult, ...] | list[CheckResult], seconds: float) -> dict[str, str]:
    count = {status: sum(result.status == status for result in results) for status in ("fail", "error", "skipped")}
    totals = {"tests": len(results), "failures": count["fail"], "errors": count["error"], "skipped": count["skipped"]}
    return {name: str(total) for name, total in totals.items()} | {"time": f"{seconds:.3f}"}


def _safe(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
