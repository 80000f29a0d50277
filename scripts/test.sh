#!/usr/bin/env bash
# Every test, in four parts that all run whatever the others say: what starts no JVM; what does, in two processes, since
# a machine of two cores waits for brokers and commits half the time; the demo, which starts processes of its own, and
# beside it Spark Connect, as a process that has its sessions has no others.
#   scripts/test.sh            all of it; `make test` calls it
#   scripts/test.sh -k name    one pytest with these arguments
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=.venv/bin/pytest

if [ "$#" -gt 0 ]; then exec "$pytest" "$@"; fi

alone="demo or connect"
real="spark or kafka or database or browser or cluster or crash"
failed=0
part() { printf '\n== %s\n' "$1"; shift; "$pytest" --durations=15 "$@"; }
part "without a JVM, two processes" -n 2 -m "not ($real or $alone)" || failed=1
# After a process died, xdist would start another one and may then wait without end; so the one that is left goes on alone.
part "on real parts, two processes" -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 \
  -m "($real) and not ($alone)" || failed=1
# Two at the same time, each in one process; what Spark Connect's prints stands last.
connect=$(mktemp)
trap 'rm -f "$connect"' EXIT
part "Spark Connect, beside the demo" -m connect >"$connect" 2>&1 &
part "the demo" -m demo || failed=1
wait $! || failed=1
cat "$connect"
exit "$failed"
