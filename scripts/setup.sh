#!/usr/bin/env bash
# Sets up a fresh clone: a Python environment in .venv, Java, Chromium for the browser tests, the jars.
# Each step looks first and does nothing when its part is there. `make` calls it; it can be run by hand:
#   scripts/setup.sh python|java|browser|databases|jars|tools|try ...
# RECON_REQUIRE_HASHES=1 makes .venv anew, only from files whose hash is in requirements-hashes.txt. Not by default: a mirror
# that builds wheels itself has other files.
set -euo pipefail
cd "$(dirname "$0")/.."
# Bytecode is compiled once here, so that commands start fast.
unset PYTHONDONTWRITEBYTECODE

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# apt where it exists and we may use it: as root, or with RECON_SUDO=1 by a sudo that does not ask.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
can_apt() {
  command -v apt-get >/dev/null || return 1
  [ "$(id -u)" = 0 ] && return 0
  if [ "${RECON_SUDO:-}" != 1 ]; then
    say "$* is missing; run 'sudo apt-get install $*', or let this script do it with RECON_SUDO=1"
    return 1
  fi
  command -v sudo >/dev/null && sudo -n true 2>/dev/null
}
updated=
apt_install() {
  can_apt "$@" || return 1
  say "installing $* with apt"
  export DEBIAN_FRONTEND=noninteractive
  if [ -z "$updated" ]; then
    as_root apt-get -qq -o DPkg::Lock::Timeout=300 update || return 1
    updated=1
  fi
  as_root apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" >/dev/null
}

# A Python that is new enough and can make environments: PYTHON, else the system's own before one that somebody compiled,
# which without profile-guided optimization is a tenth slower. A pyenv shim may exist for a Python that does not.
usable_python() {
  local name
  for name in ${PYTHON:+"$PYTHON"} /usr/bin/python3.1{1,2,3} python3.11 python3.12 python3.13 python3; do
    if command -v "$name" >/dev/null && "$name" -c \
      'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

a_python() {
  usable_python && return
  apt_install python3 python3-venv >&2 || true
  usable_python || fail "Python 3.11 to 3.13 with venv is needed and was not found; install python3 and python3-venv"
}

setup_python() {
  local stamp=.venv/.installed want python
  local hashed=${RECON_REQUIRE_HASHES:-}
  want=$({ cat pyproject.toml constraints.txt; if [ "$hashed" = 1 ]; then cat requirements-hashes.txt; fi; } | cksum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && .venv/bin/python -c '' 2>/dev/null; then return; fi
  # pip compares what it installs, not what is there already.
  if [ "$hashed" = 1 ]; then rm -rf .venv; fi
  if ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(a_python)
    say "making .venv with $python"
    rm -rf .venv
    "$python" -m venv .venv
  fi
  say "installing Python packages (a few minutes the first time)"
  if [ "$hashed" = 1 ]; then
    .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements-hashes.txt ||
      fail "the packages were not installed with RECON_REQUIRE_HASHES=1; if a hash differs, the index gives another file than PyPI's: use PyPI, or ask who runs the index"
    .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
  else
    .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[alerts,dev,docs,gx,heads,iceberg,odcs,openlineage,otel,pdf,postgres,prometheus,mysql,sqlserver]'
  fi
  printf '%s\n' "$want" >"$stamp"
}

java_works() { .venv/bin/python -c 'from recon.local.java import find_java; print(find_java())' 2>/dev/null; }

setup_java() {
  local package
  if java_works >/dev/null; then return; fi
  for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
    if apt_install "$package" && java_works >/dev/null; then return; fi
  done
  fail "Java 17 or newer is needed and could not be installed; install openjdk-17-jre-headless (or any JDK 17+) or set JAVA_HOME"
}

# The browser tests look for these two names; without them they are skipped and say so.
setup_browser() {
  if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then return; fi
  if apt_install chromium chromium-driver && command -v chromium >/dev/null; then return; fi
  say "WARNING: chromium and chromium-driver are missing and could not be installed: THE BROWSER TESTS WILL BE SKIPPED"
}

# PostgreSQL comes with a Python package. The tests of MariaDB look for mariadbd and are skipped without it.
setup_databases() {
  if command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; then return; fi
  # The package starts a server of its own where an init system runs; ours bring their own data and port.
  if apt_install mariadb-server && { command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ]; }; then return; fi
  say "WARNING: mariadb-server is missing and could not be installed: THE TESTS OF MARIADB WILL BE SKIPPED"
}

setup_jars() {
  local stamp=.venv/.jars want
  want=$(cat constraints.txt tests/support/drivers.py recon/spark/jars.txt | cksum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then return; fi
  say "fetching the jars of Kafka, Delta, Spark's Kafka connector and JDBC drivers"
  .venv/bin/python -m scripts.warm
  printf '%s\n' "$want" >"$stamp"
}

# What `recon try` needs, in an environment of its own: it starts no Spark, asks no broker and reads no frame of pandas.
setup_try() {
  local stamp=build/try/.installed want python
  if [ "${RECON_REQUIRE_HASHES:-}" = 1 ]; then
    fail "make try compares no hashes; run RECON_REQUIRE_HASHES=1 make setup, then .venv/bin/recon try"
  fi
  want=$(cat pyproject.toml constraints.txt | cksum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && build/try/bin/python -c '' 2>/dev/null; then return; fi
  python=$(a_python)
  say "making build/try with $python, and installing what recon try needs"
  rm -rf build/try
  "$python" -m venv build/try
  build/try/bin/python - >build/try/requirements.txt <<'END'
import re, tomllib

for one in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]:
    if re.match(r"[\w-]+", one)[0] not in ("pyspark", "delta-spark", "confluent-kafka", "pandas"):
        print(one)
END
  build/try/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -r build/try/requirements.txt
  build/try/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
  printf '%s\n' "$want" >"$stamp"
}

# What `make hashes` and `make sbom` run: in an environment of its own, apart from the one that it describes.
setup_tools() {
  local stamp=.venv/tools/.installed want tools
  want=$(cat pyproject.toml constraints.txt | cksum)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && .venv/tools/bin/python -c '' 2>/dev/null; then return; fi
  say "installing the tools of make hashes and make sbom"
  tools=$(.venv/bin/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['tools'], sep='\n')")
  .venv/bin/python -m venv .venv/tools
  printf '%s\n' "$tools" | .venv/tools/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt -r /dev/stdin
  printf '%s\n' "$want" >"$stamp"
}

for part in "$@"; do
  case "$part" in
    python | java | browser | databases | jars | tools | try) "setup_$part" ;;
    *) fail "unknown part $part; it is one of python, java, browser, databases, jars, tools, try" ;;
  esac
done
