#!/usr/bin/env bash
# Builds the wheel, installs it into an empty environment and runs tests/smoke/smoke.py from outside the checkout.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONPATH
root=$PWD
scratch=$(mktemp -d)
# A leftover build folder would put deleted modules into the wheel. What `make matrix` and `make docs` keep there stays.
clean() { rm -rf "$root/build/lib" "$root"/build/bdist.*; }
trap 'rm -rf "$scratch"; clean' EXIT
clean

.venv/bin/python -m build --wheel --outdir "$scratch/dist" . >"$scratch/build.log" 2>&1 || {
  cat "$scratch/build.log"
  echo "wheel: the build failed" >&2
  exit 1
}
.venv/bin/python -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt "$scratch"/dist/*.whl
cp tests/smoke/smoke.py "$scratch/smoke.py"
cd "$scratch"
"$scratch/venv/bin/python" smoke.py "$root"
