#!/bin/sh
# Sets up .venv in this checkout and runs the test suite.
#
#   sh tests/run.sh                    install what is missing, run everything
#   sh tests/run.sh --setup-only       install what is missing, run nothing
#   sh tests/run.sh tests/wire -x      anything else goes to pytest
#
# System packages are installed only by root and only where a tool is missing. A tool that stays missing is
# named; its tests fail, or, with CI=true, the run before them. PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

setup_only=
if [ "${1-}" = --setup-only ]; then
    setup_only=yes
    shift
fi

say() { printf '%s\n' "tests/run.sh: $*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# --- system tools: "<command>:<package>" ---
tools='socat:socat tcpdump:tcpdump ip:iproute2 nft:nftables gcc:gcc g++:g++ make:make perl:perl
       systemctl:systemd tshark:tshark man:man-db go:golang-go gofmt:golang-go
       cargo:cargo rustfmt:rustfmt clippy-driver:rust-clippy java:openjdk-17-jre-headless'

# The commands of $tools that are not there, with "field 1", or their packages, with "field 2".
missing() {
    for entry in $tools; do
        have "${entry%%:*}" || printf '%s ' "$(printf '%s' "$entry" | cut -d: -f"$1")"
    done
}

PATH=${CARGO_HOME:-$HOME/.cargo}/bin:/usr/local/go/bin:$PATH:/usr/sbin:/sbin
export PATH
packages=$(missing 2)
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && have apt-get; then
    say "installing $packages"
    # shellcheck disable=SC2086  # a list of words
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
    } >&2 || say "apt-get failed"
fi
absent=$(missing 1)
if [ -n "$absent" ]; then
    say "missing: ${absent}(packages: $(missing 2))"
    [ "${CI-}" != true ] || die "with CI=true every tool must be there"
fi

# --- Python and .venv ---
modern='import sys; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if have "$candidate" && "$candidate" -c "$modern" 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    die "needs Python 3.11 or later${PYTHON:+ ($PYTHON is not)}; set PYTHON=/path/to/python3.11"
}

if ! .venv/bin/python -c "$modern" 2>/dev/null; then
    python=$(find_python)
    rm -rf .venv
    say "making .venv with $python"
    if ! "$python" -m venv .venv; then
        rm -rf .venv
        die "$python cannot make a virtual environment (on Debian: apt-get install python3-venv)"
    fi
fi

# Installed again only when pyproject.toml, what is compiled or the place of the checkout changed.
wanted="$(cat pyproject.toml bccnd/wire/native/Cargo.* bccnd/wire/native/src/* | cksum) $(pwd)"
if [ "$(cat .venv/installed-for-tests 2>/dev/null)" != "$wanted" ]; then
    say "installing the project and what its tests need into .venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' >&2
    printf '%s\n' "$wanted" >.venv/installed-for-tests
fi

# The compiled half of bccnd/wire may be missing where no Rust can build it, and nowhere else.
if [ -z "${BCCN_PURE-}" ] && ! .venv/bin/python -c 'from bccnd.wire.native import COMPILED as c; exit(not c)'; then
    recent='{ split($2, version, "."); exit version[1] == 1 && version[2] < 74 }'
    if have cargo && rustc --version | awk "$recent" &&
        cargo fetch --quiet --locked --manifest-path bccnd/wire/native/Cargo.toml; then
        rm -f .venv/installed-for-tests
        die "bccnd/wire/native was not built although Rust is here; see: .venv/bin/pip install -v -e ."
    fi
    say "no Rust 1.74 here, or no way to its crates: the tests run without what is compiled"
    BCCN_PURE=1
    export BCCN_PURE
fi

[ -z "$setup_only" ] || exit 0
whole=yes
for given in "$@"; do
    case $given in -k* | -m* | [!-]*) whole='' ;; esac
done
[ -n "$whole" ] || exec .venv/bin/python -m pytest "$@"

# Spark's tests take all of the processor, the others mostly wait: both at once, Spark's with what the others leave.
told=$(mktemp)
trap 'rm -f "$told"' EXIT
nice .venv/bin/python -m pytest -m spark "$@" >"$told" 2>&1 &
spark=$!
trap 'kill $spark 2>/dev/null; exit 130' INT TERM
status=0
.venv/bin/python -m pytest -m 'not spark' "$@" || status=$?
say "the tests with Spark, which ran meanwhile:"
wait $spark || status=$?
cat "$told"
exit $status
