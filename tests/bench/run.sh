#!/bin/sh
# Measures the relay beside its peers; see tests/bench/README.md.
#
#   sh tests/bench/run.sh                            everything, about half an hour
#   sh tests/bench/run.sh --quick                    whether it all works, tiny counts
#   sh tests/bench/run.sh --only fan-out,churn --runs 9 --output ~/figures
#   sh tests/bench/run.sh --help
#
# Peers that are missing are installed by root, from Debian's packages and without starting their services; whoever is
# missing after that is left out by name. PYTHON=/path/to/python with the extra "bench" saves making .venv.
set -eu
cd "$(dirname "$0")/../.."

say() { printf '%s\n' "tests/bench/run.sh: $*" >&2; }

PATH=$PATH:/usr/sbin:/sbin
export PATH

# "<command>:<package>"
tools='nats-server:nats-server redis-server:redis-server mosquitto:mosquitto dbus-daemon:dbus-daemon gcc:gcc ip:iproute2'
packages=
for entry in $tools; do
    command -v "${entry%%:*}" >/dev/null 2>&1 || packages="$packages ${entry#*:}"
done

# The peers are to run while they are measured and at no other time.
keep_services_down() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e $policy ] || return 0
    trap 'rm -f $policy' EXIT INT TERM
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
}

if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing$packages"
    (
        keep_services_down
        apt-get update -q
        # shellcheck disable=SC2086  # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $packages
    ) >&2 || say "apt-get failed"
fi

if [ -z "${PYTHON-}" ]; then
    sh tests/run.sh --setup-only
    PYTHON=.venv/bin/python
fi
exec "$PYTHON" -m tests.bench "$@"
