#!/usr/bin/env bash
# Every test, in three parts that all run whatever the others say: the demo, which must end within four minutes; beside
# it, at a lower priority, what starts no JVM; then what does, in two processes, since a machine of two cores waits for
# brokers and commits half the time.
#   scripts/test.sh            all of it; `make test` calls it
#   scripts/test.sh -k name    one pytest with these arguments
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=.venv/bin/pytest

if [ "$#" -gt 0 ]; then exec "$pytest" "$@"; fi

alone="demo"
real="spark or kafka or database or browser or cluster or crash"
failed=0
part() { printf '\n== %s\n' "$1"; shift; "$pytest" --durations=15 "$@" || failed=1; }

# Job control, since a job of the background would otherwise ignore Ctrl-C, and the processes that it starts, too.
set -m
log=$(mktemp)
nice "$pytest" --durations=15 -n 2 -m "not ($real or $alone)" > "$log" 2>&1 &
no_jvm=$!
trap 'kill -- "-$no_jvm" 2> /dev/null; rm -f "$log"' EXIT
set +m
part "the demo, whose time is limited" -m "$alone"
printf '\n== without a JVM, two processes, beside the demo\n'
wait "$no_jvm" || failed=1
cat "$log"
part "on real parts, two processes" -n 2 --dist loadfile --no-loadscope-reorder -m "($real) and not ($alone)"
exit "$failed"
