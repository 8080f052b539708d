"""What tests need of the machine.

    pytestmark = pytest.mark.needs("root", "ip")     a module's or a test's
    require("gcc")                                   within a fixture, or for what only some parameters need

``root`` is the right to change user, to mount and to make namespaces, and a name that ends with ``.pm`` is a Perl
module. Everything else is a command on PATH. A test that misses something fails and names it: nothing is skipped.
"""

import os
import shutil
import subprocess
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI") == "true"
NOT_IN_CI = "(with CI=true nothing is skipped)"


def require(*needed: str) -> None:
    missing = [name for name in needed if not _is_here(name)]
    if missing:
        cannot_run(f"needs {' '.join(missing)}")


def _is_here(name: str) -> bool:
    if name == "root":
        return os.geteuid() == 0
    if name.endswith(".pm"):
        command = ["perl", "-e", f"require '{name}'"]
        return (
            bool(shutil.which("perl")) and not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
        )
    return shutil.which(name) is not None


def cannot_run(reason: str) -> NoReturn:
    """Fails the test, for a need that is no command."""
    pytest.fail(reason, pytrace=False)
