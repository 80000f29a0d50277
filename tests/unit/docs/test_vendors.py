"""The examples for Databricks, Fabric and EMR, read by parsers and by models of the services: none of them is here."""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from recon.spark.session import DELTA_CONF

ROOT = Path(__file__).parents[3]
VENDORS = ROOT / "examples" / "vendors"


def test_the_requirements_are_those_of_recon_without_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (VENDORS / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [d for d in project["dependencies"] if not d.startswith(("pyspark", "delta-spark"))]
    assert [line for line in lines if not line.startswith("#")] == wanted
    assert len(wanted) == len(project["dependencies"]) - 2


@pytest.mark.parametrize("notebook", ["databricks_audit.py", "fabric_audit.py"])
def test_a_notebook_is_python_and_calls_recon_as_it_is(notebook: str) -> None:
    import recon

    tree = ast.parse((VENDORS / notebook).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_recons(node.func)]
    assert [call.func.attr for call in calls] == ["run_audit"]  # type: ignore[attr-defined]
    (call,) = calls
    assert {keyword.arg for keyword in call.keywords} <= set(recon.run_audit.__kwdefaults__ or ()) | {"spark"}


def _is_recons(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "recon"


def test_the_bundle_names_what_lies_beside_it() -> None:
    bundle = yaml.safe_load((VENDORS / "databricks.yml").read_text(encoding="utf-8"))
    (job,) = bundle["resources"]["jobs"].values()
    (cluster,), (task,) = job["job_clusters"], job["tasks"]
    assert task["job_cluster_key"] == cluster["job_cluster_key"]
    assert (VENDORS / task["notebook_task"]["notebook_path"]).is_file()
    widgets = (VENDORS / "databricks_audit.py").read_text(encoding="utf-8")
    assert all(f'dbutils.widgets.get("{name}")' in widgets for name in task["notebook_task"]["base_parameters"])


def test_the_request_to_emr_is_one_that_the_service_takes() -> None:
    request = json.loads((VENDORS / "emr_serverless_job.json").read_text(encoding="utf-8"))
    model = ServiceModel(Loader().load_service_model("emr-serverless", "service-2"))
    shape = model.operation_model("StartJobRun").input_shape
    report = ParamValidator().validate({"clientToken": "t", **request}, shape)
    assert not report.has_errors(), report.generate_report()
    submit = request["jobDriver"]["sparkSubmit"]
    options = shlex.split(submit["sparkSubmitParameters"])
    assert {option for option in options if option.startswith("--")} == {"--files", "--archives", "--conf"}
    settings = dict(value.split("=", 1) for option, value in pairwise(options) if option == "--conf")
    assert settings.items() >= DELTA_CONF.items()
    assert (ROOT / "examples" / submit["entryPoint"].rpartition("/")[2]).is_file()
