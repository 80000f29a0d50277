"""recon in Airflow 3: an operator that audits, and a sensor that waits until the pipelines are proved complete.

Both start the command `recon`, so that recon and Spark can be installed in another environment than Airflow: put this
file beside your DAGs and name the command.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

FAILED = 1  # the exit code of an audit in which something failed
_KILL_AFTER_S = 20


class ReconCommand:
    """How `recon audit` is started, and what became of it."""

    def __init__(self, operator: ReconAuditOperator | ReconCompleteSensor, *options: str) -> None:
        # Each task has a folder of its own: two tasks of one project take none of each other's results.
        self.target = Path(operator.project_dir, "target", "airflow", f"{operator.dag_id}.{operator.task_id}")
        selected = [part for one in operator.select for part in ("--select", one)]
        self.arguments = [*operator.command, "audit", "--no-color", "--project-dir", operator.project_dir, *selected]
        self.arguments += [*operator.options, *options, "--target-path", str(self.target)]
        self.env = dict(operator.env) if operator.env is not None else None
        self.process: subprocess.Popen[str] | None = None

    def audit(self, log: Any) -> tuple[int, dict[str, Any]]:
        """The exit code and a summary: the answer of each pipeline, the checks that failed, and the report.

        Raises:
            AirflowException: recon could not run; a later try may.
        """
        lines = []
        try:
            self.process = subprocess.Popen(
                self.arguments, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert self.process.stdout is not None
            for line in self.process.stdout:
                lines.append(line.rstrip())
                log.info("%s", lines[-1])
            code = self.process.wait()
        finally:
            self.kill()  # where the task's time is over, for one
        if code not in (0, FAILED):
            said = next((line for line in reversed(lines) if line), "nothing was printed")
            raise AirflowException(f"recon audit ended with exit code {code}: {said}")
        results = json.loads((self.target / "run_results.json").read_text(encoding="utf-8"))
        return code, summary(results, self.target)

    def kill(self) -> None:
        """Ends an audit that is running; what it had not finished is looked at by the next one."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(_KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def summary(results: Mapping[str, Any], target: Path) -> dict[str, Any]:
    """What fits into an XCom."""
    pipelines = results["recon"]["pipelines"]

    def names(status: str) -> list[str]:
        return [one["unique_id"] for one in results["results"] if one["status"] == status]

    return {
        "answers": {pipeline["name"]: pipeline["answer"] for pipeline in pipelines},
        "because": {pipeline["name"]: pipeline["because"] for pipeline in pipelines},
        "failed": names("fail"),
        "errors": names("error"),
        "warned": names("warn"),
        "report": str(target / "report.html"),
    }


class ReconAuditOperator(BaseOperator):
    """Runs `recon audit`; its XCom is the summary.

    A check that fails, or a pipeline that is not complete, fails the task without another try: the next audit would
    find the same. What could not be evaluated, such as with a broker that does not answer, and what kept recon from
    running is tried again, as `retries` says.

    Args:
        project_dir: the folder of recon.yml; results and report are in target/airflow there, in a folder per task.
        command: how recon is started: ("/opt/recon/bin/recon",), or ("uv", "run", "recon").
        select: what to audit, as `--select`; everything by default.
        options: more options of `recon audit`, such as "--require-complete".
        env: the environment of the command; Airflow's own by default.
    """

    template_fields = ("project_dir", "select", "options", "env")

    def __init__(
        self,
        *,
        project_dir: str,
        command: Sequence[str] = ("recon",),
        select: Sequence[str] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project_dir, self.command, self.select, self.options, self.env = project_dir, command, select, options, env
        self._running: ReconCommand | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Runs the audit."""
        self._running = ReconCommand(self)
        code, found = self._running.audit(self.log)
        if code == FAILED:
            answers = "; ".join(f"{name}: {answer}" for name, answer in found["answers"].items())
            numbers = (("failed", "failed"), ("errors", "could not be evaluated"), ("warned", "warned"))
            counts = "checks: " + ", ".join(f"{len(found[kind])} {text}" for kind, text in numbers)
            for_good = found["failed"] or "not complete" in found["answers"].values()
            raise (AirflowFailException if for_good else AirflowException)(
                f"{counts}; {answers}; see {found['report']}"
            )
        return found

    def on_kill(self) -> None:
        """Ends the command with the task."""
        if self._running is not None:
            self._running.kill()


class ReconCompleteSensor(BaseSensorOperator):
    """Waits until an audit passes and proves every pipeline that it looks at complete.

    It waits while something could not be proved, and while a check fails. A pipeline that is "not complete" fails the
    task: rows that are lost do not come by waiting.

    "Complete" speaks of what the stream has read. That it has read far enough is a check of its own: give
    `kafka_end_offsets` a `warn_after`, and the sensor `options=["--warn-error"]`, and it waits for a stream that lags.

    Args:
        project_dir: the folder of recon.yml; results and report are in target/airflow there, in a folder per task.
        command: how recon is started.
        select: what to audit, as `--select`; a selector that matches no check is an error.
        options: more options of `recon audit`, such as "--no-spark" where no check of rows is needed.
        env: the environment of the command; Airflow's own by default.
    """

    template_fields = ("project_dir", "select", "options", "env")

    def __init__(
        self,
        *,
        project_dir: str,
        command: Sequence[str] = ("recon",),
        select: Sequence[str] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project_dir, self.command, self.select, self.options, self.env = project_dir, command, select, options, env
        self._running: ReconCommand | None = None

    def poke(self, context: Any) -> bool:
        """Whether what was audited is complete."""
        self._running = ReconCommand(self, "--require-complete")
        code, found = self._running.audit(self.log)
        for name, answer in found["answers"].items():
            if answer == "not complete":
                raise AirflowFailException(f"pipeline {name} is not complete: {found['because'][name]}")
        return code == 0 and bool(found["answers"])

    def on_kill(self) -> None:
        """Ends the command with the task."""
        if self._running is not None:
            self._running.kill()
