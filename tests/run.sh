#!/bin/sh
# Sets up .venv in this checkout and runs the test suite.
#
#   sh tests/run.sh                    run everything: some 14 minutes on two cores
#   sh tests/run.sh --quick            run style, types and every test that starts no program: a minute and a half
#   sh tests/run.sh --setup-only       run nothing
#   sh tests/run.sh tests/wire -x      run what is named: the arguments go to pytest
#   sh tests/run.sh --hostile=all      run everything, with all hostile behaviours and not a quarter of them
#   sh tests/run.sh --help
#
# Each form installs what is missing first. --quick is for every save; it counts at its end what it leaves to the whole
# suite. A new test is quick by itself unless it starts a program (tests/quick.py). Both forms use all cores and take
# pytest's flags too: -x stops at the first failure, -n0 runs one test at a time.
#
# Only root installs system packages, and only for tools that are missing. If a tool stays missing, run.sh names it and
# its tests fail; with CI=true nothing runs at all. PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

form=
case ${1-} in
    --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit ;;
    --quick | --setup-only) form=${1#--}; shift ;;
esac

say() { printf '%s\n' "tests/run.sh: $*" >&2; }
die() { say "$*"; exit 1; }
have() {
    case $1 in
        *.pm) perl -e "require '$1'" >/dev/null 2>&1 ;;
        *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# --- system tools: "<command>:<package>", or of a Perl module "<file>.pm:<package>" ---
tools='socat:socat tcpdump:tcpdump ip:iproute2 nft:nftables gcc:gcc g++:g++ make:make perl:perl
       systemctl:systemd tshark:tshark man:man-db go:golang-go gofmt:golang-go
       cargo:cargo rustfmt:rustfmt clippy-driver:rust-clippy java:openjdk-17-jre-headless
       javac:openjdk-17-jdk-headless node:nodejs npm:npm chromium:chromium chromedriver:chromium-driver
       rsync:rsync setpriv:util-linux nats-server:nats-server openssl:openssl AnyEvent.pm:libanyevent-perl IO/Async.pm:libio-async-perl'

# What of $tools is not there, with "field 1", or their packages, with "field 2".
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
    [ "${CI-}" != true ] || die "CI=true asks for every tool"
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

# Python compiles each module once, and not in each of the thousand processes that the tests start.
unset PYTHONDONTWRITEBYTECODE

# Install again only after a change of a pyproject.toml, of what is compiled, or of the checkout's path.
wanted="compat $(cat pyproject.toml clients/python/pyproject.toml bccnd/wire/native/Cargo.* bccnd/wire/native/src/* | cksum) $(pwd)"
if [ "$(cat .venv/installed-for-tests 2>/dev/null)" != "$wanted" ]; then
    say "installing the project and what its tests need into .venv"
    # "compat" puts the checkout on the path. The default is a finder, which takes each process 15 ms to start.
    PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
        .venv/bin/python -m pip install --config-settings editable_mode=compat -e ./clients/python -e '.[dev]' >&2
    printf '%s\n' "$wanted" >.venv/installed-for-tests
fi

# The type checker of the JavaScript client, which needs none itself.
checker='typescript@7.0.2 @types/node@20.19.43'
if have npm && [ "$(cat .venv/typescript/installed-for-tests 2>/dev/null)" != "$checker" ]; then
    say "installing $checker into .venv"
    # shellcheck disable=SC2086  # a list of words
    if npm install --prefix .venv/typescript --silent --no-fund --no-audit --ignore-scripts $checker >&2; then
        printf '%s\n' "$checker" >.venv/typescript/installed-for-tests
    else
        say "npm cannot install it: its test fails"
        [ "${CI-}" != true ] || die "CI=true asks for every tool"
    fi
fi

# The compiled half of bccnd/wire may be missing only where no Rust can build it.
if [ -z "${BCCN_PURE-}" ] && ! .venv/bin/python -c 'from bccnd.wire.native import COMPILED as c; exit(not c)'; then
    recent='{ split($2, version, "."); exit version[1] == 1 && version[2] < 74 }'
    if have cargo && rustc --version | awk "$recent" &&
        cargo fetch --quiet --locked --manifest-path bccnd/wire/native/Cargo.toml; then
        rm -f .venv/installed-for-tests
        die "bccnd/wire/native was not built although Rust is here; see: .venv/bin/pip install -v -e ./clients/python -e ."
    fi
    say "no Rust 1.74 here, or no way to its crates: the tests run without what is compiled"
    BCCN_PURE=1
    export BCCN_PURE
fi

if [ "$form" != quick ] && have java; then
    .venv/bin/python -m tests.spark.archive || say "without an archive of Spark's classes its tests take a quarter longer"
fi

[ "$form" != setup-only ] || exit 0
for given in "$@"; do
    case $given in -k* | -m* | [!-]*) form=${form:-named} ;; esac
done
[ "$form" != named ] || exec .venv/bin/python -m pytest "$@"

# The tests of a file stay in one process, for what they share. Files begin in the order of their names: the longest are
# among the first.
cores=$(nproc)
if [ "$form" = quick ]; then
    exec .venv/bin/python -m pytest -p tests.side_by_side --copies "$cores" -q -m quick "$@"
fi

# Spark's tests compute and the others mostly wait: all run at once. None goes first: Spark gives a process that it
# starts ten seconds to answer. One process runs those that share a Spark, which is the faster the longer it runs, and
# one those that start programs with Spark. Only files that may have such tests are read for them (tests/conftest.py).
with_spark="tests/pipeline $(grep -rl --include='test_*.py' 'mark\.spark' tests | grep -v '^tests/pipeline/')"
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
# shellcheck disable=SC2086
.venv/bin/python -m pytest -m one_spark tests/pipeline "$@" >"$output/shared" 2>&1 &
shared=$!
# shellcheck disable=SC2086
.venv/bin/python -m pytest -m 'spark and not one_spark' $with_spark "$@" >"$output/programs" 2>&1 &
programs=$!
trap 'kill $shared $programs 2>/dev/null; exit 130' INT TERM
status=0
.venv/bin/python -m pytest --no-loadscope-reorder --dist=loadfile -n "$((cores + 2))" -m 'not spark' "$@" || status=$?
say "the tests with Spark, which ran at the same time:"
wait $shared || status=$?
wait $programs || status=$?
cat "$output/shared" "$output/programs"
exit $status
