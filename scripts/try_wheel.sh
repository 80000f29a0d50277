#!/usr/bin/env bash
# What README begins with, as printed, in an empty folder and with an empty environment: `git clone`, `make try`, and
# `pip install ./recon`, which builds the wheel; then tests/smoke/smoke.py of what was installed. `make demo` and
# `make test` are left to tests/demo and to CI.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE PYTHONPATH VIRTUAL_ENV
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The clone has what is here, committed or not.
git init -q "$scratch/origin"
git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -xf - -C "$scratch/origin"
git -C "$scratch/origin" add -A
git -C "$scratch/origin" -c user.name=try -c user.email=try@localhost commit -q -m "What is here"

# The lines of the first two console blocks, without comments.
mapfile -t lines < <(awk '/^```/ {n++} n % 2 && n < 4 && sub(/^\$ /, "") {sub(/ +#.*/, ""); print}' README.md)
run() { printf 'readme: %s\n' "$1"; eval "$1" || { echo "readme: \`$1\` failed" >&2; exit 1; }; }
cd "$scratch"
for line in "${lines[@]}"; do
  case "$line" in
    "git clone <address of this repository> recon") run "git clone -q '$scratch/origin' recon" ;;
    "cd recon") run "$line" ;;
    "make try")
      SECONDS=0
      run "$line" >"$scratch/try.log" || { cat "$scratch/try.log"; exit 1; }
      grep -q "Pipeline payments: not complete" "$scratch/try.log"
      echo "readme: make try took $SECONDS s"
      # Its next step, as printed.
      run "$(sed -n 's/^ *\(.* runbook LOSS_RETENTION\) .*/\1/p' "$scratch/try.log") >/dev/null"
      ;;
    "make demo" | "make test") echo "readme: $line is run by tests/demo and by CI" ;;
    "pip install ./recon")
      cd "$scratch"
      "$root/.venv/bin/python" -m venv "$scratch/venv"
      # The pinned versions: what an index has newer today says nothing of this commit.
      PATH=$scratch/venv/bin:$PATH PIP_CONSTRAINT=$root/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 run "$line"
      ;;
    *) echo "readme: nothing here runs \`$line\`" >&2; exit 1 ;;
  esac
done
cp "$root/tests/smoke/smoke.py" "$scratch/smoke.py"
"$scratch/venv/bin/python" smoke.py "$root"
