"""The rows of a quarantine table, counted without Spark."""

from __future__ import annotations

from collections.abc import Mapping

from recon.base.errors import EvidenceError
from recon.base.lazy import pa
from recon.base.storage import Storage
from recon.base.text import first_line
from recon.model.wire.columns import BATCH_ID, EPOCH, RELEASE, ROW_ID
from recon.witness import delta_log


def count(storage: Storage) -> Mapping[tuple[int | None, int | None, int | None], int]:
    """How many rows there are, by (epoch, batch_id, number of the release that claimed them); a row's copy is none.

    Raises:
        EvidenceError: the table cannot be read.
    """
    from deltalake import QueryBuilder

    by = f"{EPOCH}, {BATCH_ID}, {RELEASE}"
    try:
        query = QueryBuilder().register("q", delta_log.open_table(storage))
        counted = pa.table(query.execute(f"SELECT {by}, count(DISTINCT {ROW_ID}) AS n FROM q GROUP BY {by}"))
    except Exception as error:  # delta-rs and DataFusion raise many kinds
        raise EvidenceError(f"the rows of {storage.uri} cannot be counted: {first_line(error)}") from error
    return {(row[EPOCH], row[BATCH_ID], row[RELEASE]): row["n"] for row in counted.to_pylist()}
