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

FAILED, COULD_NOT_RUN = 1, 2


class ReconCommand:
    """How `recon audit` is started, and what became of it."""

    def __init__(
        self,
        project_dir: str,
        *,
        command: Sequence[str] = ("recon",),
        select: Sequence[str] = (),
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.project_dir, self.target = project_dir, str(Path(project_dir, "target"))
        selected = [part for one in select for part in ("--select", one)]
        self.arguments = [*command, "audit", "--no-color", "--project-dir", project_dir, *selected, *options]
        self.arguments += ["--target-path", self.target]
        self.env = dict(env) if env is not None else None
        self.process: subprocess.Popen[str] | None = None

    def audit(self, log: Any) -> tuple[int, dict[str, Any]]:
        """The exit code and a summary: the answer of each pipeline, the checks that failed, and the report.

        Raises:
            AirflowException: recon could not run; a later try may.
        """
        results = Path(self.target, "run_results.json")
        results.unlink(missing_ok=True)  # the ones of another day say nothing of this run
        self.process = subprocess.Popen(
            self.arguments, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        lines = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line.rstrip())
            log.info("%s", lines[-1])
        code = self.process.wait()
        if code not in (0, FAILED) or not results.exists():
            said = next((line for line in reversed(lines) if line), "nothing was printed")
            raise AirflowException(f"recon audit ended with exit code {code}: {said}")
        return code, summary(json.loads(results.read_text(encoding="utf-8")), self.target)

    def kill(self) -> None:
        """Ends an audit that is running; what it had not finished is looked at by the next one."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def summary(results: Mapping[str, Any], target: str) -> dict[str, Any]:
    """What fits into an XCom."""
    return {
        "answers": {pipeline["name"]: pipeline["answer"] for pipeline in results["recon"]["pipelines"]},
        "because": {pipeline["name"]: pipeline["because"] for pipeline in results["recon"]["pipelines"]},
        "failed": [one["unique_id"] for one in results["results"] if one["status"] in ("fail", "error")],
        "report": str(Path(target, "report.html")),
    }


class ReconAuditOperator(BaseOperator):
    """Runs `recon audit`; its XCom is the summary.

    A check that fails, fails the task without another try: the next audit would find the same. What kept recon from
    running (a broker that does not answer, a wrong recon.yml) is tried again, as `retries` says.

    Args:
        project_dir: the folder of recon.yml.
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
        self._running = ReconCommand(
            self.project_dir, command=self.command, select=self.select, options=self.options, env=self.env
        )
        code, found = self._running.audit(self.log)
        if code == FAILED:
            answers = "; ".join(f"{name}: {answer}" for name, answer in found["answers"].items())
            raise AirflowFailException(f"{len(found['failed'])} checks failed; {answers}; see {found['report']}")
        return found

    def on_kill(self) -> None:
        """Ends the command with the task."""
        if self._running is not None:
            self._running.kill()


class ReconCompleteSensor(BaseSensorOperator):
    """Waits until an audit passes and proves every pipeline that it looks at complete.

    It goes on waiting while something could not be proved yet, or a check fails that time can mend (freshness, lag). A
    pipeline that is "not complete" fails the task: rows that are lost do not come by waiting. Use `mode="reschedule"`,
    and `options=["--no-spark"]` where no check of rows is needed.

    Args:
        project_dir, command, select, options, env: as of ReconAuditOperator.
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

    def poke(self, context: Any) -> bool:
        """Whether what was audited is complete."""
        options = [*self.options, "--require-complete"]
        command = ReconCommand(
            self.project_dir, command=self.command, select=self.select, options=options, env=self.env
        )
        code, found = command.audit(self.log)
        for name, answer in found["answers"].items():
            if answer == "not complete":
                raise AirflowFailException(f"pipeline {name} is not complete: {found['because'][name]}")
        return code == 0
