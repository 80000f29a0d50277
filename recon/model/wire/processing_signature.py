"""What rows go through on their way to a sink, as ledger entries name it: a transform, and the routes as a hash."""

from __future__ import annotations

ROUTED = "routes:"


def parts_of(named: str | None) -> tuple[str | None, str | None]:
    """The transform and the routes of what an entry names, each None where there was none.

    >>> parts_of("orders_job:parse routes:5f0c2a9b")
    ('orders_job:parse', '5f0c2a9b')
    """
    transform, _, routes = f" {named or ''}".partition(f" {ROUTED}")
    return transform.strip() or None, routes or None
