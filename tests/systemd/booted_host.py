"""A host with systemd as process 1, made of namespaces and a control group that end with the test.

The host sees this machine's /usr, /etc, /var and /opt below overlays, which keep in memory what it writes. Its units
are those that it needs to boot, and the project's as they stand. The code is below /opt. ``ProtectHome=`` hides
homes: if the interpreter is in one, that part of the home is mounted for the service.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Self

from tests.daemon_process import die_with_parent
from tests.packet_client import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
GROUPS = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
TOOLS = ("systemd-analyze", "systemctl", "journalctl", "unshare", "nsenter", "setpriv")

# What a host needs to boot without hardware.
BASE = (
    "sysinit.target basic.target shutdown.target sockets.target paths.target timers.target slices.target "
    "network.target umount.target systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket"
)
PROGRAM = """\
#!{python}
import sys
sys.path[:0] = ["/opt/checkout", "/opt/checkout/clients/python", "/opt/packages"]
if sys.argv[0].endswith("-record"):
    from bccnd.recorder.command import main
elif sys.argv[0].endswith("-pipeline"):
    from bccnd.pipeline.cli import main
elif sys.argv[0].endswith("-collect"):
    from bccnd.pipeline.collect import main
elif sys.argv[0].endswith("-backbone"):
    from bccnd.backbone.command import main
elif sys.argv[0].endswith("-uplink"):
    from bccnd.uplink.command import main
elif sys.argv[0].endswith("-mux"):
    from bccnd.mux.command import main
elif sys.argv[0].endswith("-dndm"):
    from bccnd.dndm.command import main
else:
    from bccnd.daemon import main
sys.exit(main())
"""
BOOT = """\
set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /run/overlays
for place in etc var usr opt; do
    mkdir -p /run/overlays/$place /run/overlays/$place.work
    upper=/run/overlays/$place
    mount -t overlay -o lowerdir=/$place,upperdir=$upper,workdir=$upper.work overlay /$place
done
for place in checkout:{root} packages:{packages}; do
    mkdir -p /opt/${{place%%:*}}
    mount --bind "${{place#*:}}" /opt/${{place%%:*}}
done
for name in bccnd bccnd-record bccnd-pipeline bccnd-collect bccnd-backbone bccnd-uplink bccnd-mux bccnd-dndm; do
    cp {folder}/bccnd /usr/bin/$name
done
mkdir -p /run/units /etc/bccnd
for unit in {base_units}; do ln -s /lib/systemd/system/$unit /run/units/; done
cp {root}/systemd/bccnd*.service {root}/systemd/bccnd.socket /run/units/
case {base} in /home/* | /root/*)
    for unit in {root}/systemd/bccnd*.service; do
        unit=${{unit##*/}}
        mkdir /run/units/$unit.d
        printf '[Service]\\nProtectHome=tmpfs\\nBindReadOnlyPaths={base}\\n' >/run/units/$unit.d/interpreter.conf
    done ;;
esac
printf '[Unit]\\nRequires=sysinit.target basic.target\\nWants=systemd-journald.service\\n' >/run/units/host.target
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
systemd-sysusers {root}/systemd/sysusers.d/bccnd.conf
systemd-tmpfiles --create {root}/systemd/tmpfiles.d/bccnd.conf
cp {folder}/bccnd.toml /etc/bccnd/bccnd.toml
ip link set lo up
mount --make-rshared /  # within the host: credentials reach a service through it
exec env -i SYSTEMD_UNIT_PATH=/run/units container=bccnd-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=host.target --log-target=journal --show-status=no
"""
SETTINGS = """\
host = "here"
broadcast = "127.255.255.255"
"""


def why_not() -> str:
    """The reason why no host can boot here; empty if one can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"needs systemd and {' '.join(missing)}"
    if not any((group / "cgroup.procs").exists() for group in GROUPS):
        return "needs control groups, version 2"
    return ""


class BootedHost:
    """A context manager. On entry the host boots; on exit it ends with everything it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.console = folder / "console"
        top = next(group for group in GROUPS if (group / "cgroup.procs").exists())
        self._group = top / f"bccnd-test-{os.getpid()}"
        (folder / "bccnd.toml").write_text(SETTINGS)
        program = folder / "bccnd"
        program.write_text(PROGRAM.format(python=Path(sys.executable).resolve()))
        program.chmod(0o755)
        (folder / "boot.sh").write_text(
            BOOT.format(
                base=sys.base_prefix,
                root=ROOT,
                packages=sysconfig.get_path("purelib"),
                folder=folder,
                base_units=BASE,
            )
        )

    def __enter__(self) -> Self:
        self._group.mkdir()
        enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(self._group)]
        namespaces = ["--pid", "--mount", "--cgroup", "--net", "--uts", "--ipc"]
        boot = ["unshare", "--fork", "--kill-child", *namespaces, "sh", str(self._folder / "boot.sh")]
        with self.console.open("wb") as console:
            self._process = subprocess.Popen(
                [*enter, *boot],
                stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            wait_until(self._up, "systemd to boot")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _up(self) -> bool:
        assert self._process.poll() is None, self.console.read_text()
        unshare = self._process.pid
        children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        if not children or Path(f"/proc/{children[0]}/comm").read_text() != "systemd\n":
            return False
        self.init = int(children[0])
        return self.run("systemctl", "is-active", "host.target", check=False).strip() == "active"

    def _end(self) -> None:
        self._process.kill()  # with it ends process 1, and with that everything else
        self._process.wait()
        wait_until(self._remove_groups, "an empty control group")

    def _remove_groups(self) -> bool:
        try:
            for folder, _, _ in os.walk(self._group, topdown=False):
                os.rmdir(folder)
        except OSError:
            return False
        return True

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command in the host as root. Its output, errors included."""
        done = subprocess.run(
            ["nsenter", "--all", "--target", str(self.init), *command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=2 * PATIENCE, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{self.journal()}"
        return done.stdout

    def code(self, *command: str) -> int:
        return subprocess.run(
            ["nsenter", "--all", "--target", str(self.init), *command], timeout=2 * PATIENCE, check=False
        ).returncode

    def journal(self, unit: str = "bccnd") -> str:
        """The log of the unit, and systemd's lines about it."""
        return subprocess.run(
            ["nsenter", "--all", "--target", str(self.init), "journalctl", f"--unit={unit}", "--output=cat"],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        ).stdout  # fmt: skip

    def show(self, name: str, unit: str = "bccnd.service") -> str:
        """A property of the unit."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def write(self, path: str, content: str) -> None:
        subprocess.run(
            ["nsenter", "--all", "--target", str(self.init), "sh", "-c", 'mkdir -p "${0%/*}"; cat >"$0"', path],
            input=content, text=True, timeout=PATIENCE, check=True,
        )  # fmt: skip

    def path(self, path: str) -> Path:
        """The path from here to a file of the host."""
        return Path(f"/proc/{self.init}/root{path}")
