"""Starts the project's services as copies of one process that has imported them.

A service takes a quarter of a second of processor time to start, most of it to import, and the tests start more than
a thousand. Here each test run has one process more, which imports a service when it is first asked for it, and copies
itself (fork) each time.

    test run  -- module, arguments, environment, stdin, stdout, stderr -->  this module, run as a program
              <-- pid -----------------------------------------------------  its copy calls the service's ``main``

Rules
- A copy is what ``python -m MODULE ...`` would be: it has its arguments, environment, folder, limits and streams, no
  other descriptor, and no thread. It dies with the test run.
- Whatever would make another Python of it, such as a variable that Python reads, is started afresh, and so is what
  cannot be imported: it says itself why.
- Only ``tests/conftest.py`` turns it on: what measures a start measures a real one.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

# Bytes: more than an environment and the arguments of a service.
REQUEST_LIMIT = 1 << 20
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE)
IN_NAMESPACE = ["ip", "netns", "exec"]

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET, _CLONE_NEWNS = 0x40000000, 0x00020000
_MS_SLAVE, _MS_REC, _MNT_DETACH = 1 << 19, 1 << 14, 2
_libc = ctypes.CDLL(None, use_errno=True)

is_on = False


class Copy:
    """A running service; as much of ``subprocess.Popen`` as tests use."""

    returncode: int | None = None

    def __init__(self, preparation: "Preparation", pid: int, command: Sequence[str]) -> None:
        self.pid, self.args = pid, command
        self._preparation = preparation
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()  # select() knows no descriptor beyond 1023
            waiting.register(self._pidfd, select.POLLIN)
            if waiting.poll(None if seconds is None else max(0, seconds) * 1000):
                self.returncode = self._preparation.ask({"ended": self.pid})
                os.close(self._pidfd)
        return self.returncode

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Preparation:
    """The process that is copied, as the test run sees it."""

    def __init__(self) -> None:
        self.surroundings = _surroundings(os.environ)
        self._talk, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._talk.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * REQUEST_LIMIT)
        self._lock = threading.Lock()
        with theirs:
            # "bccnd" is for whoever looks a copy up by its command line.
            command = [sys.executable, "-m", "tests.prepared", "bccnd", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        atexit.register(self._end, os.getpid())

    def ask(self, request: Mapping[str, Any], streams: Sequence[int] = ()) -> int:
        with self._lock:
            socket.send_fds(self._talk, [json.dumps(request).encode()], streams)
            answer = self._talk.recv(100)
        assert answer, "what copies services has ended: see its stderr"
        return int(answer)

    def _end(self, owner: int) -> None:
        if os.getpid() == owner:
            self._talk.close()
            self._process.wait()


@cache
def _preparation(_owner: int) -> Preparation:
    return Preparation()


def start(command: Sequence[str], log: BinaryIO, environ: Mapping[str, str]) -> Copy | None:
    """The same as ``subprocess.Popen(command, stderr=log, env=environ)``; None where that is to do it."""
    words = list(command)
    namespace = ""
    if words[:3] == IN_NAMESPACE:
        namespace, words = words[3], words[4:]
    if not is_on or words[:2] != [sys.executable, "-m"]:
        return None
    preparation = _preparation(os.getpid())
    if _surroundings(environ) != preparation.surroundings:
        return None
    request = {
        "module": words[2],
        "arguments": words[3:],
        "namespace": namespace,
        "environ": dict(environ),
        "folder": os.getcwd(),
        "cores": list(os.sched_getaffinity(0)),
        "limits": [resource.getrlimit(each) for each in LIMITS],
        "umask": _umask(),
        "parent": preparation._process.pid,
    }
    pid = preparation.ask(request, [0, 1, log.fileno()])
    return Copy(preparation, pid, command) if pid else None


def _surroundings(environ: Mapping[str, str]) -> tuple[object, ...]:
    """What a copy has from the process that is copied, and cannot change any more."""
    ours = ("BCCN", "PYTEST_CURRENT_TEST")
    others = {
        name: value for name, value in environ.items() if not name.startswith(ours) or name == "BCCN_PURE"
    }
    return others, os.getresuid(), os.getresgid(), os.getgroups(), os.readlink("/proc/thread-self/ns/net")


def _umask() -> int:
    """Without changing it."""
    return int(Path("/proc/self/status").read_text().partition("\nUmask:")[2].split()[0], 8)


# --- the process that is copied ---


def _await_request(talk: socket.socket) -> tuple[dict[str, Any], ModuleType]:
    """Serves the test run until it has gone. Returns in each copy."""
    imported: dict[str, ModuleType] = {}
    while True:
        data, streams, _, _ = socket.recv_fds(talk, REQUEST_LIMIT, 3)
        if not data:
            sys.exit()
        request = json.loads(data)
        if "ended" in request:
            _, status = os.waitpid(request["ended"], 0)
            talk.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        name = request["module"]
        program = imported.get(name) or _imported(name)
        if program is None:
            for descriptor in streams:
                os.close(descriptor)
            talk.send(b"0")
            continue
        imported[name] = program
        ready, becomes = os.pipe()
        pid = os.fork()
        if pid == 0:
            talk.close()
            os.close(ready)
            _become(request, streams)
            os.close(becomes)
            return request, program
        for descriptor in (becomes, *streams):
            os.close(descriptor)
        os.read(ready, 1)  # its end: whatever the test does to the copy from now on, stays
        os.close(ready)
        talk.send(b"%d" % pid)


def _imported(name: str) -> ModuleType | None:
    """What ``python -m`` would run; None where that has to."""
    gc.disable()
    try:
        program = importlib.import_module(f"{name}.__main__")
    except Exception:  # noqa: BLE001 - it is said again by what is started in place of a copy
        return None
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
    return program if len(os.listdir("/proc/self/task")) == 1 else None  # a copy would lack threads


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Have all that the new process would have."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    if os.getppid() != request["parent"]:
        os._exit(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.sched_setaffinity(0, request["cores"])
    for limit, values in zip(LIMITS, request["limits"], strict=True):
        resource.setrlimit(limit, values)
    if request["namespace"]:
        _enter(request["namespace"])


def _enter(namespace: str) -> None:
    """As ``ip netns exec`` does, with a /sys of the namespace."""
    with open(f"/run/netns/{namespace}") as opened:
        _check(_libc.setns(opened.fileno(), _CLONE_NEWNET))
    _check(_libc.unshare(_CLONE_NEWNS))
    _check(_libc.mount(b"", b"/", b"none", ctypes.c_ulong(_MS_SLAVE | _MS_REC), None))
    _check(_libc.umount2(b"/sys", _MNT_DETACH))
    _check(_libc.mount(namespace.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None))


def _check(returned: int) -> None:
    if returned:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _main() -> int:
    talk = socket.socket(fileno=int(sys.argv[2]))
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    request, program = _await_request(talk)
    assert program.__file__
    sys.argv[:] = [program.__file__, *request["arguments"]]
    sys.orig_argv[:] = [sys.executable, "-m", request["module"], *request["arguments"]]
    return int(program.main())


if __name__ == "__main__":
    sys.exit(_main())
