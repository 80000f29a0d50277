#!/usr/bin/env bash
# Every test: first what starts no JVM, then Spark, Kafka and databases in two processes (a machine of two cores waits
# for brokers and commits half the time), then what wants the machine for itself. All three run whatever the others say.
#   scripts/test.sh            all of it; `make test` calls it
#   scripts/test.sh -k name    one pytest with these arguments
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=.venv/bin/pytest

if [ "$#" -gt 0 ]; then exec "$pytest" "$@"; fi

shared="spark or kafka or database"
alone="browser or cluster or demo or crash"
failed=0
part() { printf '\n== %s\n' "$1"; shift; "$pytest" --durations=15 "$@" || failed=1; }
part "without a JVM" -m "not ($shared or $alone)"
part "on real parts, two processes" -n 2 --dist loadfile -m "($shared) and not ($alone)"
part "one at a time" -m "$alone"
exit "$failed"
