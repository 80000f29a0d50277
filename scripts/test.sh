#!/usr/bin/env bash
# Every test but those marked `long` (`make soak`), in four parts that all run whatever the others say: what starts no
# JVM, in two processes; what does, in three, since these wait for brokers and commits half of the time; the demo, which
# starts processes of its own, and beside it Spark Connect, as a process that has its sessions has no others.
#   scripts/test.sh            all of them; `make test` calls it
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
# After a process died, xdist would start another one and may then wait without end. It ends instead; what did not run
# is run after it, and the death stays a failure.
left=$(mktemp)
divided="--dist loadfile --no-loadscope-reorder --max-worker-restart=0"
RECON_TESTS_LEFT=$left part "on real parts, three processes" -n 3 $divided \
  -m "($real) and not ($alone) and not long" || failed=1
if [ -s "$left" ]; then part "what a process that died left" -n 2 $divided "@$left" || failed=1; fi
# Two at the same time, each in one process; what Spark Connect's prints stands last.
connect=$(mktemp)
trap 'rm -f "$connect" "$left"' EXIT
part "Spark Connect, beside the demo" -m connect >"$connect" 2>&1 &
part "the demo" -m demo || failed=1
wait $! || failed=1
cat "$connect"
exit "$failed"
