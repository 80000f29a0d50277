"""recon in Dagster: one audit gives the asset checks of every sink.

    defs = dg.Definitions(assets=[orders], asset_checks=[audit_checks("/srv/shop", {"orders": "orders"})])

For each sink that stands for an asset there are two checks: `complete`, whether the sink's pipeline is proved complete,
and `checks`, whether all of recon's checks of the sink passed. Their metadata have what recon found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

import recon

COMPLETE, CHECKS = "complete", "checks"


def audit_checks(project: str, assets: Mapping[str, str | Sequence[str]], **options: Any) -> dg.AssetChecksDefinition:
    """The checks of sinks as Dagster's.

    Args:
        project: the folder of recon.yml.
        assets: for the name of a sink, the key of the asset that it fills.
        options: of `recon.run_audit`, such as `no_spark=True`.
    """
    keys = {sink: dg.AssetKey(asset) for sink, asset in assets.items()}
    specs = [dg.AssetCheckSpec(name, asset=key) for key in keys.values() for name in (COMPLETE, CHECKS)]

    @dg.multi_asset_check(specs=specs, name="recon_audit")
    def audit() -> Iterator[dg.AssetCheckResult]:
        run = recon.run_audit(project, **options).to_dict()
        for pipeline in run["recon"]["pipelines"]:
            for sink in pipeline["sinks"]:
                if sink["name"] in keys:
                    yield completeness(keys[sink["name"]], pipeline)
                    yield checks(keys[sink["name"]], sink["name"], pipeline["name"], run["results"])

    return audit


def completeness(key: dg.AssetKey, pipeline: Mapping[str, Any]) -> dg.AssetCheckResult:
    """Whether the pipeline is proved complete. What could not be proved has not passed, and is a warning."""
    severity = dg.AssetCheckSeverity.ERROR if pipeline["answer"] == "not complete" else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=COMPLETE,
        passed=pipeline["answer"] == "complete",
        severity=severity,
        description=f"{pipeline['answer']}: {pipeline['because']}",
        metadata={"pipeline": pipeline["name"], "answer": pipeline["answer"]},
    )


def checks(key: dg.AssetKey, sink: str, pipeline: str, results: Sequence[Mapping[str, Any]]) -> dg.AssetCheckResult:
    """Whether all checks of a sink, and those of its pipeline, passed."""
    mine = [
        one
        for one in results
        if one["adapter_response"]["pipeline"] == pipeline and one["adapter_response"]["sink"] in (sink, None)
    ]
    bad = [one for one in mine if one["status"] in ("fail", "error")]
    warned = [one for one in mine if one["status"] == "warn"]
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECKS,
        passed=not bad and not warned,
        severity=dg.AssetCheckSeverity.ERROR if bad else dg.AssetCheckSeverity.WARN,
        description="; ".join(f"{one['adapter_response']['name']}: {one['message']}" for one in [*bad, *warned])
        or None,
        metadata={one["adapter_response"]["name"]: f"{one['status']}: {one['message']}" for one in mine},
    )
