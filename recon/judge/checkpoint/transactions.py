"""The transaction numbers (txn) of a Delta table, under which Delta drops a write that it takes for a repeated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recon.model import TableCommit, TableLog
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
        log: TableLog,
        commits: Sequence[TableCommit],
        pipeline: str,
        sink: str | None,
        observed_query: str | None = None,
    ) -> Transactions:
        """Reads a table's log; `commits` are those of the sink.

        Spark's own sink uses the id of its query as app id: it skips micro-batches of no other query, and none that
        recon writes. `observed_query` is the query that writes so now.
        """
        taken = frozenset(txn for commit in log.commits.values() for txn in commit.txn.items())
        newest = dict(sorted((*log.txns.items(), *taken)))  # of each app id the highest version comes last
        of_queries = {commit.wrote[0] for commit in commits if commit.wrote is not None} - {observed_query}
        apps = dict.fromkeys(app for commit in commits for app in commit.txn if app not in of_queries)
        fixed_apps = [app for app in apps if not _is_made_by_recon(app, pipeline, sink)]
        return cls(taken, newest, [app for app in fixed_apps if app in _last_txn(commits)], fixed_apps)

    def skipping(self, batch_id: int, *, new_epoch: bool, beyond: bool) -> str | None:
        """The app id under which another write has used the batch_id; None for none.

        So it is where settings leaked into another write's session, and in a new epoch under any fixed app id.
        `beyond`: the batch_id is higher than those of all entries, so that every higher number was another write's,
        too.
        """
        for app in self.fixed_apps if new_epoch else self.last_apps:
            higher = (new_epoch or beyond) and self.newest.get(app, -1) >= batch_id
            if higher or (app, batch_id) in self.taken:
                return app
        return None


def _last_txn(commits: Sequence[TableCommit]) -> Mapping[str, int]:
    """The transaction numbers of the newest commit that is no release from quarantine."""
    of_batches = [commit for commit in commits if commit.stamp is None or commit.stamp.epoch >= 0]
    return max(of_batches, key=lambda commit: commit.version).txn if of_batches else {}


def _is_made_by_recon(app: str, pipeline: str, sink: str | None) -> bool:
    """Whether recon made the app id for this sink."""
    parsed = parse_app_id(app)
    return parsed is not None and (parsed.pipeline, parsed.sink) == (pipeline, sink)
