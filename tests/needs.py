"""What tests need of the machine.

    pytestmark = pytest.mark.needs("root", "ip")     a module's or a test's
    require("gcc")                                   within a fixture, or for what only some parameters need

``root`` is the right to change user, to mount and to make namespaces. Everything else is a command on PATH. A test
that misses something fails and names it: nothing is skipped.
"""

import os
import shutil
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI") == "true"
NOT_IN_CI = "(with CI=true nothing is skipped)"


def require(*needed: str) -> None:
    missing = [name for name in needed if not (os.geteuid() == 0 if name == "root" else shutil.which(name))]
    if missing:
        cannot_run(f"needs {' '.join(missing)}")


def cannot_run(reason: str) -> NoReturn:
    """Fails the test, for a need that is no command."""
    pytest.fail(reason, pytrace=False)
