"""The transaction numbers (txn) of a Delta table, under which Delta drops a write that it takes for a repeated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recon.model import DeltaCommit, DeltaWitness
from recon.model.wire.app_ids import parse_app_id


class Transactions(NamedTuple):
    """The transaction numbers of a sink's table, where the sink was given `txn_app_id`: they are batch ids.

    recon's own app id skips no micro-batch: each start reads its newest version, and the next write has one more.

    Args:
        taken: all (app id, version) of the commits that were read.
        newest: the newest version of each app id.
        last_apps: the fixed app ids of the newest commit of the sink, releases from quarantine left out.
        fixed_apps: the fixed app ids of all commits of the sink.
    """

    taken: frozenset[tuple[str, int]]
    newest: Mapping[str, int]
    last_apps: Sequence[str]
    fixed_apps: Sequence[str]

    @classmethod
    def of(
        cls,
        log: DeltaWitness,
        commits: Sequence[DeltaCommit],
        pipeline: str,
        sink: str | None,
        observed_query: str | None = None,
    ) -> Transactions:
        """Reads a table's log; `commits` are those of the sink.

        Spark's own sink uses the id of its query as app id: it skips micro-batches of no other query, and none that
        recon writes. `observed_query` is the query that writes so now.
        """
        taken = frozenset(txn for commit in log.commits.values() for txn in commit.txn.items())
        newest = dict(log.txns)
        for app, version in taken:
            newest[app] = max(version, newest.get(app, -1))
        of_batches = [c for c in commits if c.stamp is None or c.stamp.epoch >= 0]
        last_apps = max(of_batches, key=lambda commit: commit.version).txn if of_batches else {}
        apps = dict.fromkeys(app for commit in commits for app in commit.txn)
        of_queries = {commit.wrote[0] for commit in commits if commit.wrote is not None} - {observed_query}
        fixed_apps = [app for app in apps if app not in of_queries and not _is_made_by_recon(app, pipeline, sink)]
        return cls(taken, newest, [app for app in last_apps if app in fixed_apps], fixed_apps)

    def skipping(self, batch_id: int, *, beyond: bool) -> str | None:
        """The app id under which another write of the same epoch has used the batch_id.

        So it is where settings leaked into another write's session. `beyond`: the batch_id is higher than those of all
        entries, so that every higher number was another write's, too.
        """
        for app in self.last_apps:
            if (app, batch_id) in self.taken or (beyond and self.newest.get(app, -1) >= batch_id):
                return app
        return None

    def skipping_a_new_epoch(self, batch_id: int) -> str | None:
        """The app id under which an earlier epoch used the batch_id."""
        return next((app for app in self.fixed_apps if self.newest.get(app, -1) >= batch_id), None)


def _is_made_by_recon(app: str, pipeline: str, sink: str | None) -> bool:
    """Whether recon made the app id for this sink."""
    parsed = parse_app_id(app)
    return parsed is not None and (parsed.pipeline, parsed.sink) == (pipeline, sink)
