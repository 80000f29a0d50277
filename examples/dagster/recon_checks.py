"""recon in Dagster: one audit gives the asset checks of every sink.

    defs = dg.Definitions(assets=[orders], asset_checks=[audit_checks("/srv/shop", {"orders": "orders"})])

For each sink that stands for an asset there are two checks: `complete`, whether the sink's pipeline is proved complete,
and `checks`, whether all of recon's checks of the sink passed. Their metadata have what recon found. "Complete" speaks
of what the stream has read: give `kafka_end_offsets` an `error_after`, and a stream that is later is not complete.
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
        assets: for a sink, as `sink` or `pipeline.sink`, the key of the asset that it fills.
        options: of `recon.run_audit`, such as `no_spark=True`.

    Raises:
        ValueError: a sink is not in recon.yml, or two pipelines have one of that name.
    """
    keys = {_sink_of(project, name): dg.AssetKey(asset) for name, asset in assets.items()}
    specs = [dg.AssetCheckSpec(name, asset=key) for key in keys.values() for name in (COMPLETE, CHECKS)]

    @dg.multi_asset_check(specs=specs, name="recon_audit")
    def audit() -> Iterator[dg.AssetCheckResult]:
        run = recon.run_audit(project, **options).to_dict()
        pipelines = {pipeline["name"]: pipeline for pipeline in run["recon"]["pipelines"]}
        for (pipeline, sink), key in keys.items():
            yield completeness(key, pipelines.get(pipeline))
            yield checks(key, sink, pipeline, run["results"])

    return audit


def _sink_of(project: str, name: str) -> tuple[str, str]:
    sinks = [
        (pipeline.name, sink.name) for pipeline in recon.load_project(project).pipelines for sink in pipeline.sinks
    ]
    found = [one for one in sinks if name in (one[1], ".".join(one))]
    if len(found) != 1:
        raise ValueError(f"{len(found)} sinks of {project} are called {name}; the sinks are {sinks}")
    return found[0]


def completeness(key: dg.AssetKey, pipeline: Mapping[str, Any] | None) -> dg.AssetCheckResult:
    """Whether the pipeline is proved complete. What could not be proved has not passed, and is a warning."""
    answer = "not audited" if pipeline is None else pipeline["answer"]
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=COMPLETE,
        passed=answer == "complete",
        severity=dg.AssetCheckSeverity.ERROR if answer == "not complete" else dg.AssetCheckSeverity.WARN,
        description=answer if pipeline is None else f"{answer}: {pipeline['because']}",
        metadata={"answer": answer},
    )


def checks(key: dg.AssetKey, sink: str, pipeline: str, results: Sequence[Mapping[str, Any]]) -> dg.AssetCheckResult:
    """Whether all checks of a sink, and those of its pipeline, passed; one that was skipped has not."""
    mine = [
        one
        for one in results
        if one["adapter_response"]["pipeline"] == pipeline and one["adapter_response"]["sink"] in (sink, None)
    ]
    others = [one for one in mine if one["status"] != "pass"]
    bad = any(one["status"] in ("fail", "error") for one in others)
    told = (f"{one['adapter_response']['name']}: {one['status']}: {one['message']}" for one in others)
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECKS,
        passed=bool(mine) and not others,
        severity=dg.AssetCheckSeverity.ERROR if bad else dg.AssetCheckSeverity.WARN,
        description="; ".join(told) if mine else "no check of this sink was run",
        metadata={one["adapter_response"]["name"]: f"{one['status']}: {one['message']}" for one in mine},
    )
