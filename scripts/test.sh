#!/usr/bin/env bash
# Every test, in four parts that all run whatever the others say: what starts no JVM; what does, in two processes, since
# a machine of two cores waits for brokers and commits half the time; Spark Connect, as a process that has its sessions
# has no others; the demo, which starts processes of its own.
#   scripts/test.sh            all of it; `make test` calls it
#   scripts/test.sh -k name    one pytest with these arguments
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=.venv/bin/pytest

if [ "$#" -gt 0 ]; then exec "$pytest" "$@"; fi

alone="demo or connect"
real="spark or kafka or database or browser or cluster or crash"
failed=0
part() { printf '\n== %s\n' "$1"; shift; "$pytest" --durations=15 "$@" || failed=1; }
part "without a JVM, two processes" -n 2 -m "not ($real or $alone)"
# After a process died, xdist would start another one and may then wait without end; so the one that is left goes on alone.
part "on real parts, two processes" -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 -m "($real) and not ($alone)"
part "Spark Connect, alone" -m connect
part "the demo, alone" -m demo
exit "$failed"
