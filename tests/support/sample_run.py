"""A realistic run for tests of the reports: `orders` is complete, `payments` is not, `clicks` could not be proved.

Everything is computed from fixed figures, so two calls give equal runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from recon.model import (
    BatchPoint,
    CheckResult,
    Code,
    CoverageCell,
    Finding,
    HarmCount,
    HarmedRange,
    Incident,
    LikelyCause,
    NextStep,
    OffsetSums,
    PartitionFacts,
    Pattern,
    PipelineFacts,
    RunResult,
    SinkChange,
    SinkFacts,
)
from recon.model.books import BookLine
from recon.model.compliance import (
    AuditRecord,
    ChainHeads,
    ComplianceReport,
    EpochRecord,
    ExceptionRecord,
    Signature,
    SinkCompliance,
)
from recon.model.past import DayCost, DayLag, Detection, PastAudit, PastAudits, PipelineLag, Spell, Strip
from recon.model.sample import (
    Frame,
    LedgerHead,
    Outcome,
    Sample,
    SampledPath,
    SampledRecord,
    SampledWrite,
    SourceRecord,
)

START = datetime(2026, 3, 17, 6, 0, tzinfo=UTC)
STEP = timedelta(minutes=10)
NOW = START + timedelta(hours=24, minutes=4, seconds=31, microseconds=125000)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def coverage_cells(batches: int, per_batch: int, *, skip: dict[int, str] | None = None) -> tuple[CoverageCell, ...]:
    """A cell per batch; `skip` gives the state of the batches that are not simply covered."""
    made, at = [], 0
    for n in range(batches):
        width = per_batch + (n * 7919) % 41
        state = (skip or {}).get(n, "covered")
        start = at - width // 2 if state == "overlap" else at
        made.append(
            CoverageCell(
                from_time=START + n * STEP,
                to_time=START + (n + 1) * STEP,
                start_offset=start,
                end_offset=at + width,
                state=state,
            )
        )
        at += width
    return tuple(made)


def _partition(topic: str, partition: int, cells: tuple[CoverageCell, ...], lag: int | None) -> PartitionFacts:
    end = cells[-1].end_offset
    return PartitionFacts(
        topic=topic,
        partition=partition,
        start_offset=0,
        end_offset=end,
        log_start=None if lag is None else 0,
        log_end=None if lag is None else end + lag,
        lag=lag,
        cells=cells,
    )


def _points(batches: int, rows: int, *, epoch_from: int | None = None, unknown: int | None = None):
    points = []
    for n in range(batches):
        wave = 1.0 + 0.55 * (1 - abs((n % 144) - 72) / 72)
        offsets = int(rows * wave) + (n * 131) % 97
        epoch = 1 if epoch_from is not None and n >= epoch_from else 0
        points.append(
            BatchPoint(
                at=START + n * STEP,
                epoch=epoch,
                first_batch_id=n - (epoch_from or 0) if epoch else n,
                last_batch_id=n - (epoch_from or 0) if epoch else n,
                batches=1,
                offsets=offsets,
                rows_written=None if n == unknown else offsets - 3,
            )
        )
    return tuple(points)


def _result(name: str, check: str, status: str, pipeline: str, sink: str | None = None, **more) -> CheckResult:
    more.setdefault("kind", "evidence")
    more.setdefault("message", "")
    more.setdefault("failures", {"pass": 0, "error": None, "skipped": None}.get(status, 1))
    more.setdefault("execution_time", 0.0125)
    started = None if status == "skipped" else START + timedelta(hours=24)
    return CheckResult(
        unique_id=f"test.lake.{name}",
        name=name,
        check=check,
        status=status,
        pipeline=pipeline,
        sink=sink,
        relation_name=f"/srv/lake/{sink}" if sink else None,
        started_at=started,
        completed_at=started and started + timedelta(seconds=more["execution_time"]),
        **more,
    )


def _finding(code: Code, message: str, **where) -> Finding:
    return Finding(code=code, message=message, **where)


def account(**terms: int | bool | str | None) -> OffsetSums:
    """What became of offsets; what is not told is 0."""
    names = ("filtered", "quarantined", "control", "aborted", "compacted", "without_record", "lost", "removed")
    zero = dict.fromkeys((*names, "missing", "undecided"), 0)
    return OffsetSums(**{**zero, "rows_read": True, **terms})


def _orders() -> tuple[PipelineFacts, list[CheckResult]]:
    partitions = tuple(
        _partition("orders", p, coverage_cells(144, 900 + p * 13, skip={143: "in flight"} if p == 5 else None), 0)
        for p in range(8)
    )
    facts = PipelineFacts(
        name="orders",
        answer="complete",
        because="All 144 micro-batches are in the ledger, in the Delta log and in the checkpoint, "
        "with the same ranges and the same rows.",
        query_id="6f1f7a0e-8b0b-4d2d-9b4e-2f2a4a4bb0a1",
        checkpoint="checkpoints/orders",
        topics=("orders",),
        isolation_level="read_committed",
        period_from=START,
        sinks=(
            SinkFacts(
                name="orders",
                kind="delta",
                target="/srv/lake/orders",
                guarantee="exactly once (Delta transaction per micro-batch)",
                batches=144,
                batches_proved=144,
                batches_refuted=0,
                batches_unproved=0,
                epochs=1,
                rows_written=1_072_914,
                rows_filtered=1204,
                rows_quarantined=38,
                account=account(
                    offsets=1_074_444, rows=1_072_914, filtered=1204, quarantined=38, control=152, aborted=136
                ),
                first_commit=START + timedelta(seconds=4),
                last_commit=START + 143 * STEP,
                chain_head=_hash("orders"),
                points=_points(144, 6000),
                partitions=partitions,
            ),
        ),
    )
    results = [
        _result(
            "offset_continuity_orders",
            "offset_continuity",
            "pass",
            "orders",
            findings=(
                _finding(
                    Code.INFLIGHT,
                    "19 offsets were planned in micro-batch 144 and are not finished yet; the plan is 12 seconds old",
                    pipeline="orders",
                    sink="orders",
                    topic="orders",
                    partition=5,
                    start_offset=143_201,
                    end_offset=143_220,
                    batch_id=144,
                    epoch=0,
                ),
            ),
            evidence={"batches": 144, "partitions": 8, "ranges": 1152},
        ),
        _result("kafka_end_offsets_orders", "kafka_end_offsets", "pass", "orders", execution_time=0.0831),
        _result(
            "checkpoint_commits_orders",
            "checkpoint_commits",
            "pass",
            "orders",
            findings=(
                _finding(
                    Code.REPLAYED,
                    "micro-batch 61 was tried twice and committed once (version 62)",
                    pipeline="orders",
                    sink="orders",
                    batch_id=61,
                    epoch=0,
                ),
            ),
        ),
        _result("delta_history_orders", "delta_history", "pass", "orders", "orders", evidence={"versions": "0–145"}),
        _result("ledger_integrity_orders", "ledger_integrity", "pass", "orders", evidence={"entries": 144}),
        _result(
            "source_rows_orders",
            "source_rows",
            "pass",
            "orders",
            "orders",
            execution_time=3.42,
            findings=(
                _finding(
                    Code.EXPLAINED,
                    "288 offsets carry no row: 152 transaction markers, 136 records of aborted transactions",
                    pipeline="orders",
                    sink="orders",
                    topic="orders",
                ),
            ),
        ),
        _result(
            "unique_combination_of_columns_orders_order_id__line",
            "unique_combination_of_columns",
            "pass",
            "orders",
            "orders",
            kind="data",
            execution_time=2.214,
            evidence={"rows": 1_072_914},
        ),
        _result(
            "not_null_orders_status", "not_null", "pass", "orders", "orders", kind="data", column="status", failures=0
        ),
    ]
    return facts, results


def _incidents() -> tuple[Incident, ...]:
    """What the findings of `payments` have in common."""

    def ranges(harm, partition, *spans):
        return tuple(
            HarmedRange(harm=harm, topic="payments", topic_id="t-1", partition=partition, start_offset=a, end_offset=b)
            for a, b in spans
        )

    def accept(id_):
        return NextStep(
            purpose="what may stay as it is, or cannot be repaired", command=f'recon accept {id_} --reason "…" --by "…"'
        )

    plan = "recon repair plan --pipeline payments --sink payments"
    return (
        Incident(
            id="3f9c02aa",
            sink="payments",
            cause="Kafka deleted these offsets before a micro-batch read them",
            codes=("LOSS_RETENTION",),
            checks=("kafka_end_offsets",),
            state="open",
            first_seen=NOW,
            findings=("3f9c02aa",),
            ranges=ranges("lost", 2, (26_658, 30_762)),
            counts=(HarmCount(harm="lost", offsets=4104, rows=None),),
            steps=(accept("3f9c02aa"),),
            messages=("the log of payments-2 starts at 27000: 342 records were deleted before they were read",),
        ),
        Incident(
            id="77aa01bc",
            sink="payments",
            cause='DELETE where ["(amount < 0)"] took away 1,204 rows: version 131 of the table',
            codes=("MUTATED", "GAP"),
            checks=("delta_history", "source_rows"),
            state="open",
            first_seen=NOW - timedelta(days=3, hours=2),
            findings=("77aa01bc", "0b1c2d3e"),
            ranges=tuple(r for p in range(5) for r in ranges("removed", p, (900 + p, 1140 + p))),
            counts=(HarmCount(harm="removed", offsets=1200, rows=1204),),
            changes=(
                SinkChange(
                    version=131,
                    at=NOW - timedelta(days=3, hours=5),
                    operation="DELETE",
                    predicate='["(amount < 0)"]',
                    rows=1204,
                    made_by={"user": "ada@example.org", "job": "nightly clean-up", "job run": "4711"},
                ),
            ),
            steps=(
                NextStep(purpose="see what can be repaired", command=plan),
                accept("77aa01bc"),
                accept("0b1c2d3e"),
            ),
            messages=(
                "version 131 is DELETE, which changed rows that were written before",
                "payments-0: offsets [900, 1140) had a row each when they were written, and no row carries them now",
            ),
        ),
        Incident(
            id="51d0e5f2",
            sink="payments",
            cause="no micro-batch wrote these offsets (micro-batch 50 (epoch 0))",
            codes=("GAP",),
            checks=("offset_continuity",),
            state="accepted",
            first_seen=NOW - timedelta(days=9),
            findings=("51d0e5f2",),
            ranges=ranges("missing", 1, (15_340, 15_962)),
            counts=(HarmCount(harm="missing", offsets=622, rows=None),),
            accepted="accepted by Ada Lovelace on 2026-03-12: test data, not needed",
            messages=("no micro-batch delivered these 622 offsets; Kafka still holds them",),
        ),
    )


def _payments() -> tuple[PipelineFacts, list[CheckResult]]:
    at = {"pipeline": "payments", "sink": "payments"}
    partitions = (
        _partition("payments", 0, coverage_cells(144, 310), 0),
        _partition("payments", 1, coverage_cells(144, 290, skip={50: "gap", 51: "gap"}), 0),
        _partition("payments", 2, coverage_cells(144, 333, skip=dict.fromkeys(range(80, 92), "lost")), 41_207),
        _partition("payments", 3, coverage_cells(144, 301, skip={110: "overlap", 143: "in flight"}), 512),
        *(_partition("payments", p, coverage_cells(144, 300 + p), p % 3) for p in range(4, 12)),
    )
    facts = PipelineFacts(
        name="payments",
        answer="not complete",
        because="Kafka deleted 4,102 records of payments-2 before they were read, and 622 offsets of payments-1 "
        "are in no commit.",
        query_id="0c5f5f1c-52b9-4c8e-a0cd-52d1ba3d3b9a",
        checkpoint="checkpoints/payments",
        topics=("payments",),
        isolation_level="read_uncommitted",
        incidents=_incidents(),
        sinks=(
            SinkFacts(
                name="payments",
                kind="delta",
                target="abfss://lake@account.dfs.core.windows.net/payments",
                guarantee="exactly once (Delta transaction per micro-batch)",
                batches=144,
                batches_proved=128,
                batches_refuted=15,
                batches_unproved=1,
                epochs=2,
                rows_written=566_100,
                rows_filtered=0,
                rows_quarantined=0,
                account=account(offsets=571_406, rows=564_900, lost=4104, removed=1200, missing=622),
                first_commit=START + timedelta(seconds=9),
                last_commit=START + 143 * STEP,
                chain_head=_hash("payments"),
                points=_points(144, 3900, epoch_from=100, unknown=120),
                partitions=partitions,
            ),
        ),
    )
    lost = tuple(
        _finding(
            Code.LOSS_RETENTION,
            f"the log of payments-2 starts at {27_000 + n * 342}: {342} records were deleted before they were read",
            topic="payments",
            partition=2,
            start_offset=26_658 + n * 342,
            end_offset=27_000 + n * 342,
            batch_id=80 + n,
            epoch=0,
            **at,
        )
        for n in range(12)
    )
    gap = _finding(
        Code.GAP,
        "no micro-batch delivered these 622 offsets; Kafka still holds them",
        topic="payments",
        partition=1,
        start_offset=15_340,
        end_offset=15_962,
        batch_id=50,
        epoch=0,
        **at,
    )
    epoch = _finding(
        Code.NEW_EPOCH,
        "the checkpoint started over: query_id changed from 99aa… to 0c5f…; batch ids begin again at 0",
        batch_id=0,
        epoch=1,
        **at,
    )
    results = [
        _result(
            "offset_continuity_payments",
            "offset_continuity",
            "fail",
            "payments",
            failures=2,
            message="payments-1 has a gap of 622 offsets after micro-batch 49, and payments-3 an overlap",
            findings=(
                gap,
                _finding(
                    Code.OVERLAP,
                    "micro-batch 10 of epoch 1 starts 170 offsets before micro-batch 9 of epoch 1 ended",
                    topic="payments",
                    partition=3,
                    start_offset=35_100,
                    end_offset=35_270,
                    batch_id=10,
                    epoch=1,
                    **at,
                ),
                epoch,
            ),
            evidence={
                "batches": 144,
                "partitions": 12,
                "ranges": 1728,
                "epochs": [{"epoch": 0, "batches": 100}, {"epoch": 1, "batches": 44}],
            },
        ),
        _result(
            "kafka_end_offsets_payments",
            "kafka_end_offsets",
            "fail",
            "payments",
            failures=12,
            message="4,102 records of payments-2 expired before they were read",
            findings=(
                *lost,
                _finding(
                    Code.LAG,
                    "41,207 offsets are unread for 18 minutes; warn_after is 5 minutes",
                    topic="payments",
                    partition=2,
                    start_offset=48_810,
                    end_offset=90_017,
                    **at,
                ),
            ),
            execution_time=0.1172,
        ),
        _result(
            "checkpoint_commits_payments",
            "checkpoint_commits",
            "warn",
            "payments",
            severity="warn",
            failures=1,
            message="micro-batch 43 of epoch 1 has no commit file",
            findings=(
                _finding(
                    Code.LEDGER_MISSING,
                    "version 146 holds micro-batch 43 of epoch 1, and the ledger has no entry for it",
                    batch_id=43,
                    epoch=1,
                    **at,
                ),
            ),
        ),
        _result(
            "delta_history_payments",
            "delta_history",
            "fail",
            "payments",
            "payments",
            failures=1,
            message="version 131 (DELETE) removed 1,204 rows that had been audited",
            findings=(
                _finding(
                    Code.MUTATED,
                    "version 131, DELETE where amount < 0: 1,204 audited rows are gone and a restart does not "
                    "read them again",
                    **at,
                ),
                _finding(Code.UNSTAMPED, "version 132, WRITE: 80 rows were appended by another writer", **at),
            ),
            evidence={"versions": "0–146", "operations": {"STREAMING UPDATE": 144, "DELETE": 1, "WRITE": 1}},
        ),
        _result("ledger_integrity_payments", "ledger_integrity", "pass", "payments", evidence={"entries": 143}),
        _result(
            "source_rows_payments",
            "source_rows",
            "error",
            "payments",
            "payments",
            message="micro-batch 120 wrote no row count and its file carries no statistics",
            findings=(
                _finding(
                    Code.INCONCLUSIVE,
                    "micro-batch 120 wrote no row count and its file carries no statistics",
                    batch_id=20,
                    epoch=1,
                    **at,
                ),
            ),
        ),
        _result(
            "unique_payments_payment_id",
            "unique",
            "fail",
            "payments",
            "payments",
            kind="data",
            column="payment_id",
            failures=7,
            message="7 keys occur more than once (9 surplus rows)",
            samples=tuple({"payment_id": f"P-{1000 + n}", "count": 2 + (n == 3) * 2} for n in range(7)),
            evidence={"rows": 566_100, "duplicate_keys": 7, "surplus_rows": 9},
            tags=("nightly", "keys"),
            execution_time=1.871,
        ),
        _result(
            "accepted_values_payments_currency__EUR__CHF",
            "accepted_values",
            "warn",
            "payments",
            "payments",
            kind="data",
            severity="warn",
            column="currency",
            failures=3,
            message="3 rows hold another value",
            samples=({"currency": "EURO", "rows": 2}, {"currency": None, "rows": 1}),
        ),
    ]
    return facts, results


def _clicks() -> tuple[PipelineFacts, list[CheckResult]]:
    partitions = tuple(_partition("clicks", p, coverage_cells(90, 4000 + p), None) for p in range(3))
    facts = PipelineFacts(
        name="clicks",
        answer="could not be proved",
        because="No broker answered at kafka-2.internal:9092, so nobody can say whether more was there to read.",
        query_id="c2a1e9b0-9b9f-4e27-8b54-7c3ef0e0a7d1",
        checkpoint="checkpoints/clicks",
        topics=("clicks",),
        isolation_level="read_uncommitted",
        sinks=(
            SinkFacts(
                name="clicks",
                kind="delta",
                target="/srv/lake/clicks",
                guarantee="exactly once (Delta transaction per micro-batch)",
                batches=90,
                batches_proved=0,
                batches_refuted=0,
                batches_unproved=90,
                epochs=1,
                rows_written=None,
                account=account(offsets=363_000, rows=None, control=None, aborted=None, compacted=None),
                first_commit=START,
                last_commit=START + 89 * STEP,
                chain_head=None,
                points=_points(90, 12_000),
                partitions=partitions,
            ),
        ),
    )
    results = [
        _result("offset_continuity_clicks", "offset_continuity", "pass", "clicks"),
        _result(
            "kafka_end_offsets_clicks",
            "kafka_end_offsets",
            "error",
            "clicks",
            message="no broker answered at kafka-2.internal:9092 within 10 s",
            execution_time=10.004,
        ),
        _result(
            "not_null_clicks_session",
            "not_null",
            "skipped",
            "clicks",
            "clicks",
            kind="data",
            column="session",
            message="rows were not read: --no-spark was given",
            execution_time=0.0,
        ),
    ]
    return facts, results


def _spells(states: str, last: date, per_day: int = 1) -> tuple[Spell, ...]:
    """A letter per day, the last of them `last`: c, n, u are answers, p, w, f, e statuses, a dot is no audit."""
    names = {
        "c": "complete", "n": "not complete", "u": "could not be proved",
        "p": "pass", "w": "warn", "f": "fail", "e": "error",
    }  # fmt: skip
    first, at, spells = last - timedelta(days=len(states) - 1), 0, []
    for letter, same in groupby(states):
        days = len(list(same))
        begin = first + timedelta(days=at)
        if letter != ".":
            end = begin + timedelta(days=days - 1)
            spells.append(Spell(first=begin, last=end, state=names[letter], audits=days * per_day))
        at += days
    return tuple(spells)


def sample_past(pipelines: int = 0) -> PastAudits:
    """A month of a daily audit, two days without one; of `pipelines` others one in ten was not complete once."""
    last = NOW.date()
    days = [last - timedelta(days=n) for n in range(29, -1, -1)]
    payments = "cccccccccc..cccccccccuuccnnnnn"
    missed = [day for day, letter in zip(days, payments, strict=True) if letter == "."]
    others = tuple(
        Strip(name=f"pipeline_{n:04}", days=_spells("c" * 20 + "nn" + "c" * 8 if n % 10 == 3 else "c" * 30, last))
        for n in range(pipelines)
    )
    strips = (
        Strip(name="payments", days=_spells(payments, last)),
        Strip(name="clicks", days=_spells("cccccccccc..ccccccccccccccccuu", last)),
        Strip(name="orders", days=_spells("cccccccccc..cccccccccccccccccc", last)),
    )
    seen = NOW - timedelta(days=4)
    return PastAudits(
        first_day=days[0],
        last_day=last,
        audits=28,
        project=_spells("cccccccccc..cccccccccuuccnnnnn", last),
        pipelines=(*(() if pipelines else strips), *others),
        checks=(
            Strip(
                name="offset_continuity_payments",
                pipeline="payments",
                days=_spells("pppppppppp..pppppppppppppfffff", last),
                failed=5,
                failures=12,
            ),
            Strip(
                name="kafka_end_offsets_clicks",
                pipeline="clicks",
                days=_spells("pppppppppp..ppppwwppppppppppee", last),
                failed=2,
            ),
        ),
        checks_total=2,
        recent=tuple(
            PastAudit(
                invocation_id=f"00000000-0000-4000-8000-{n:012d}",
                generated_at=NOW - timedelta(days=n),
                answers={"not complete": 1, "complete": 2} if n < 5 else {"complete": 3},
                counts={"fail": 2 * (n < 5), "error": int(n < 2), "warn": 1, "skipped": 0, "pass": 15},
                seconds=12.5 + n % 3,
                failing="offset_continuity_payments, unique_payments_payment_id" if n < 5 else "",
                edited=n == 7,
            )
            for n in range(28)
        ),
        costs=tuple(
            DayCost(day=day, audits=1, seconds=12.5 + n % 3, longest=12.5 + n % 3)
            for n, day in enumerate(days)
            if day not in missed
        ),
        lags=(
            PipelineLag(
                pipeline="payments",
                days=tuple(
                    DayLag(day=day, lag=None if n % 11 == 5 else n * n * 40)
                    for n, day in enumerate(days)
                    if day not in missed
                ),
            ),
        ),
        detections=(
            Detection(
                pipeline="payments", sink="payments", codes=("MUTATED",), findings=1,
                happened_at=NOW - timedelta(hours=20), first_seen=NOW,
            ),
            Detection(
                pipeline="payments", sink="payments", codes=("GAP", "LOSS_RETENTION"), findings=12,
                happened_at=seen - timedelta(hours=5), first_seen=seen,
            ),
            Detection(
                pipeline="payments", sink=None, codes=("RECREATED",), findings=1, happened_at=None, first_seen=seen,
            ),
        ),
    )  # fmt: skip


def sample_books(first: date, days: int) -> tuple[BookLine, ...]:
    """What `orders` and `payments` read from Kafka; and `clicks`, which reads the table of orders."""
    lines = []
    for day in (first + timedelta(days=at) for at in range(days)):
        made = {"day": day, "quarantined": 0, "made": 0, "filtered": 0}
        orders = {"pipeline": "orders", "sink": "orders", "hop": 1, "source": ("orders",), "micro_batches": 144}
        payments = {"pipeline": "payments", "sink": "payments", "hop": 1, "source": ("payments",), "micro_batches": 143}
        clicks = {"pipeline": "clicks", "sink": "clicks", "hop": 2, "source": ("orders.orders",), "micro_batches": 96}
        lines.append(BookLine(**{**made, **orders, "read": 720_000, "filtered": 14, "written": 719_986}))
        lost = {"lost": 700, "written": 431_870, "quarantined": 30, "unwritten": 100} if day == first else {}
        lines.append(BookLine(**{**made, **payments, "read": 432_000, "written": 432_000, **lost}))
        read = {"reads_table": True, "written_before": 719_986, "read": 719_986, "written": 719_986}
        in_part = {"unknown": ("a version was read in part",), "unknown_writes": 1, "written_before": None}
        lines.append(BookLine(**{**made, **clicks, **read, **({} if day == first else in_part)}))
    return tuple(sorted(lines, key=lambda line: (line.hop, line.pipeline, line.sink, line.day)))


def sample_run() -> RunResult:
    """The whole run: 3 pipelines, 19 checks, every status."""
    parts = (_orders(), _payments(), _clicks())
    return RunResult(
        invocation_id="3f6c9a52-8f0e-4d5b-9b3f-5b8a0b1f4d77",
        project="lake",
        recon_version="0.1.0",
        generated_at=NOW,
        period_from=START,
        period_to=START + timedelta(hours=24),
        elapsed_time=18.74,
        results=tuple(result for _, results in parts for result in results),
        pipelines=tuple(facts for facts, _ in parts),
        args={
            "select": ["orders", "payments", "clicks"],
            "no_spark": False,
            "fail_fast": False,
            "target_path": "target",
        },
        versions={"recon": "0.1.0", "deltalake": "1.6.6", "confluent-kafka": "2.12.0", "pyspark": "4.0.0"},
        notes=("No broker answered at kafka-2.internal:9092: what rests on Kafka could not be proved for clicks.",),
        past=sample_past(),
        books=sample_books(START.date(), 2),
    )


def healthy_run() -> RunResult:
    """Only `orders`: everything passes."""
    facts, results = _orders()
    run = sample_run()
    books = tuple(line for line in run.books if line.pipeline == "orders")
    return replace(run, results=tuple(results), pipelines=(facts,), notes=(), books=books)


def _hostile(incident: Incident, bad: str) -> Incident:
    """An incident in which every text is hostile."""
    return replace(
        incident,
        id=bad,
        sink=bad,
        cause=bad,
        codes=(bad,),
        checks=(bad,),
        ranges=tuple(replace(r, topic=bad) for r in incident.ranges),
        changes=tuple(
            replace(c, operation=bad, predicate=bad, made_by={bad: bad, "user": bad}) for c in incident.changes
        ),
        accepted=incident.accepted and bad,
        steps=(NextStep(purpose=bad, command=bad),),
        pattern=Pattern(
            shape="every_nth",
            says=bad,
            first=bad,
            last=bad + "2",
            causes=(LikelyCause(says=bad, because=bad, look=bad, then=bad),),
        ),
        messages=(bad, bad + "2"),
    )


def _hostile_past(bad: str) -> PastAudits:
    past = sample_past()
    return replace(
        past,
        read_from=past.first_day + timedelta(days=2),
        pipelines=tuple(replace(strip, name=bad) for strip in past.pipelines),
        checks=tuple(replace(strip, name=bad, pipeline=bad) for strip in past.checks),
        recent=tuple(replace(audit, invocation_id=bad, failing=bad) for audit in past.recent),
        lags=tuple(replace(lag, pipeline=bad) for lag in past.lags),
        detections=tuple(replace(detection, pipeline=bad, sink=bad, codes=(bad,)) for detection in past.detections),
    )


HOSTILE = "<script>alert('x')</script>\"&\x1b[31m"


def hostile_run() -> RunResult:
    """Markup, control characters and quotes in every place that data can reach."""
    bad = HOSTILE
    run = sample_run()
    payments = run.pipelines[1]
    sink = payments.sinks[0]
    partitions = tuple(replace(p, topic=bad) for p in sink.partitions)
    results = tuple(
        replace(
            r,
            name=r.name + bad,
            message=bad,
            findings=tuple(replace(f, topic=bad, message=bad, pipeline=bad) for f in r.findings),
            samples=({bad: bad},),
            evidence={bad: {bad: [bad]}},
            tags=(bad,),
        )
        for r in run.results
    )
    facts = replace(
        payments,
        name=bad,
        because=bad,
        checkpoint=bad,
        topics=(bad,),
        incidents=tuple(_hostile(incident, bad) for incident in payments.incidents),
        sinks=(replace(sink, name=bad, target=bad, chain_head=bad, partitions=partitions),),
    )
    return replace(
        run,
        project=bad,
        results=results,
        pipelines=(facts,),
        notes=(bad,),
        args={bad: bad},
        versions={bad: bad},
        invocation_id=bad,
        past=_hostile_past(bad),
    )


def big_run(partitions: int = 200, cells: int = 120) -> RunResult:
    """One pipeline with many partitions whose every second cell differs in nothing but its time and offsets."""
    run = sample_run()
    payments = run.pipelines[1]
    states = {7: {30: "gap"}, 63: {40: "lost", 41: "lost"}, 150: {99: "overlap"}}
    many = tuple(
        _partition("payments", p, coverage_cells(cells, 100 + p, skip=states.get(p)), p * 3 % 50)
        for p in range(partitions)
    )
    sink = replace(payments.sinks[0], partitions=many)
    return replace(run, pipelines=(replace(payments, sinks=(sink,)), *run.pipelines[2:]))


def large_run(pipelines: int, checks: int, failing: float = 0.02) -> RunResult:
    """Many pipelines with many checks each; some of the pipelines are not complete."""
    run, results, facts = sample_run(), [], []
    (good, good_results), (bad, bad_results) = _orders(), _payments()
    refuted = {round(n / failing) for n in range(round(pipelines * failing))}
    for n in range(pipelines):
        name = f"pipeline_{n:04}"
        pipeline, its = (bad, bad_results) if n in refuted else (good, good_results)
        sinks = tuple(replace(sink, name=name, target=f"/srv/lake/{name}") for sink in pipeline.sinks)
        incidents = tuple(replace(i, sink=name) for i in pipeline.incidents)
        facts.append(replace(pipeline, name=name, topics=(name,), sinks=sinks, incidents=incidents))
        for k in range(checks // pipelines):
            of = its[k % len(its)]
            at = {"pipeline": name, "sink": name}
            found = tuple(replace(f, **at) for f in of.findings)
            unique = f"{of.check}_{name}_column_{k}"
            results.append(replace(of, **at, name=unique, unique_id=f"test.lake.{unique}", findings=found))
    return replace(run, results=tuple(results), pipelines=tuple(facts), past=sample_past(pipelines))


def sample_compliance() -> ComplianceReport:
    """A month: `orders` without exception, `payments` with some, `clicks` not provable for a while."""
    first = datetime(2026, 3, 1, tzinfo=UTC)
    audits = tuple(
        AuditRecord(
            invocation_id=f"00000000-0000-4000-8000-{n:012d}",
            generated_at=first + timedelta(days=n, hours=6, minutes=4),
            period_from=first + timedelta(days=n - 1, hours=6) if n else None,
            period_to=first + timedelta(days=n, hours=6),
            outcome="not complete" if n == 17 else "could not be proved" if n in (9, 10) else "complete",
            passed=19 - (n == 17) * 5 - (n in (9, 10)) * 2,
            warned=int(n == 17),
            failed=(n == 17) * 4,
            errored=(n in (9, 10)) * 2,
            skipped=0,
        )
        for n in range(31)
        if n not in (21, 22)
    )
    payments = _payments()[1]
    gap = payments[0].findings[0]
    loss = payments[1].findings[0]
    return ComplianceReport(
        books=sample_books(first.date(), 31),
        project="lake",
        recon_version="0.1.0",
        generated_at=datetime(2026, 4, 1, 7, 30, tzinfo=UTC),
        period_from=first,
        period_to=datetime(2026, 4, 1, tzinfo=UTC),
        sinks=(
            SinkCompliance(
                pipeline="orders",
                sink="orders",
                kind="delta",
                target="/srv/lake/orders",
                guarantee="exactly once (Delta transaction per micro-batch)",
                topics=("orders",),
                batches=4464,
                batches_proved=4464,
                batches_refuted=0,
                batches_unproved=0,
                ranges=35_712,
                ranges_proved=35_712,
                ranges_refuted=0,
                ranges_unproved=0,
                offsets=33_488_121,
                rows_written=33_260_334,
                rows_filtered=37_324,
                rows_quarantined=1_180,
                epochs=(
                    EpochRecord(
                        epoch=0,
                        query_id="6f1f7a0e-8b0b-4d2d-9b4e-2f2a4a4bb0a1",
                        first_batch_id=12_101,
                        last_batch_id=16_564,
                        first_commit=first + timedelta(seconds=7),
                        last_commit=first + timedelta(days=30, hours=23, minutes=50),
                    ),
                ),
                chain=ChainHeads(first=_hash("o1"), last=_hash("o2"), entries=4464, verified=True),
            ),
            SinkCompliance(
                pipeline="payments",
                sink="payments",
                kind="delta",
                target="abfss://lake@account.dfs.core.windows.net/payments",
                guarantee="exactly once (Delta transaction per micro-batch)",
                topics=("payments",),
                batches=4464,
                batches_proved=4448,
                batches_refuted=15,
                batches_unproved=1,
                ranges=53_568,
                ranges_proved=53_542,
                ranges_refuted=14,
                ranges_unproved=12,
                offsets=17_520_400,
                rows_written=17_510_022,
                rows_filtered=0,
                rows_quarantined=0,
                epochs=(
                    EpochRecord(
                        epoch=0,
                        query_id="99aa5f1c-52b9-4c8e-a0cd-52d1ba3d3b9a",
                        first_batch_id=12_090,
                        last_batch_id=14_537,
                        first_commit=first + timedelta(seconds=3),
                        last_commit=first + timedelta(days=17),
                    ),
                    EpochRecord(
                        epoch=1,
                        query_id="0c5f5f1c-52b9-4c8e-a0cd-52d1ba3d3b9a",
                        first_batch_id=0,
                        last_batch_id=2015,
                        first_commit=first + timedelta(days=17, minutes=10),
                        last_commit=first + timedelta(days=30, hours=23, minutes=51),
                    ),
                ),
                chain=ChainHeads(first=_hash("p1"), last=_hash("p2"), entries=4464, verified=True),
            ),
            SinkCompliance(
                pipeline="clicks",
                sink="clicks",
                kind="delta",
                target="/srv/lake/clicks",
                guarantee="exactly once (Delta transaction per micro-batch)",
                topics=("clicks",),
                batches=2700,
                batches_proved=2610,
                batches_refuted=0,
                batches_unproved=90,
                ranges=8100,
                ranges_proved=7830,
                ranges_refuted=0,
                ranges_unproved=270,
                offsets=324_000_120,
                rows_written=None,
                rows_filtered=None,
                rows_quarantined=None,
                epochs=(),
                chain=ChainHeads(first=None, last=None, entries=0, verified=None, reason="the ledger was not read"),
            ),
        ),
        exceptions=(
            ExceptionRecord(
                finding=loss,
                first_seen=first + timedelta(days=17, hours=6),
                last_seen=first + timedelta(days=30, hours=6),
                audits=12,
                open=True,
            ),
            ExceptionRecord(
                finding=gap,
                first_seen=first + timedelta(days=17, hours=6),
                last_seen=first + timedelta(days=18, hours=6),
                audits=2,
                open=False,
            ),
            ExceptionRecord(
                finding=_finding(
                    Code.INCONCLUSIVE,
                    "no broker answered at kafka-2.internal:9092 within 10 s",
                    pipeline="clicks",
                ),
                first_seen=first + timedelta(days=9, hours=6),
                last_seen=first + timedelta(days=10, hours=6),
                audits=2,
                open=False,
            ),
        ),
        audits=audits,
        days_without_audit=(date(2026, 3, 22), date(2026, 3, 23)),
        signatures=(Signature(role="Prepared by"), Signature(role="Reviewed by")),
    )


def sample_of_records(text: str = "orders") -> Sample:
    """Three sampled records: one found, one missing, one not decided; `text` is what names and messages say."""
    ended = START + timedelta(hours=24)
    written = SampledWrite(
        epoch=0,
        batch_id=41,
        sequence=42,
        status="committed",
        entry_hash=_hash("entry 42"),
        committed_at=START,
        version=43,
        at=START,
        by=f"WRITE by {text}",
        confirmed=True,
        said="the table's log has the commit with this entry's stamp",
    )

    def record(number: int, offset: int, outcome: Outcome, said: str, *writes: SampledWrite) -> SampledRecord:
        source = SourceRecord("orders", 0, text, "mXVJdmZ4Q0uB9w0S0aXq3g", 3, offset)
        path = SampledPath(
            pipeline="orders",
            sink="orders",
            kind="delta",
            target=f"s3://lake/{text}",
            writes=writes,
            outcome=outcome,
            said=said,
            places=(f"part-00000-{_hash('file')[:36]}.snappy.parquet",) * len(writes),
        )
        return SampledRecord(number=number, record=source, paths=(path, path))

    return Sample(
        project="lake",
        recon_version="0.0.0",
        generated_at=ended,
        period_from=START,
        period_to=ended,
        seed=text,
        asked=3,
        stratified=False,
        heads=(LedgerHead("orders", "orders", _hash("entry 90"), 90), LedgerHead("orders", "archive", "", 0)),
        population=(Frame("orders", 0, text, "mXVJdmZ4Q0uB9w0S0aXq3g", 3, 0, 9_000),),
        records=(
            record(1, 410, "found", "one row of the table has this offset", written),
            record(2, 4_100, "missing", f"no row of {text} has this offset, and Kafka still has the record", written),
            record(3, 8_000, "not decided", "the table could not be read"),
        ),
    )
