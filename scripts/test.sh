#!/usr/bin/env bash
# Every test but those marked `long` (`make soak`), in parts that all run whatever the others say: what starts no JVM, in
# two processes; what does, in three, since these wait for brokers and commits half of the time. Then two that run alone:
# Spark Connect, whose server gives a Python worker ten seconds to start, and the demo, which is five processes itself.
#   scripts/test.sh            all of them; `make test` calls it
# What failed in any part stands once more at the end.
#   scripts/test.sh -k name    one pytest with these arguments
set -uo pipefail
cd "$(dirname "$0")/.."
pytest=.venv/bin/pytest

if [ "$#" -gt 0 ]; then exec "$pytest" "$@"; fi

# By folder: each process of a part imports every file of it.
real=(tests/{browser,cases,cluster,crash,kafka,local,recipes,spark})
alone=(tests/{connect,demo})
failed=0
left=$(mktemp)
printed=$(mktemp)
trap 'rm -f "$left" "$printed"' EXIT
part() {
    printf '\n== %s, %d min after the start\n' "$1" $((SECONDS / 60))
    shift
    COLUMNS=160 "$pytest" --durations=15 -m "not long" "$@" | tee -a "$printed"
}
part "without a JVM, two processes" -n 2 $(printf -- ' --ignore=%s' "${real[@]}" "${alone[@]}") || failed=1
# After a process died, xdist would start another one and may then wait without end. It ends instead; what did not run
# is run after it, and the death stays a failure.
divided="--dist loadfile --no-loadscope-reorder --max-worker-restart=0"
RECON_TESTS_LEFT=$left part "on real parts, three processes" -n 3 $divided "${real[@]}" || failed=1
if [ -s "$left" ]; then part "what a process that died left" -n 2 $divided "@$left" || failed=1; fi
part "Spark Connect" tests/connect || failed=1
part "the demo" tests/demo || failed=1
if [ "$failed" -ne 0 ]; then
    printf '\n== failed, in %d min\n' $((SECONDS / 60))
    grep -E '^(FAILED|ERROR) ' "$printed"
fi
exit "$failed"
