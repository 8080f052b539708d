"""The programs of the Python client's README run as they stand."""

import os
import re
import subprocess
import sys

import pytest

from tests.clients.drivers import CLIENTS
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE

README = (CLIENTS / "python" / "README.md").read_text()
SAID = {
    "bccn": "sensors/kitchen/temperature 21.5\n",
    "Publish": "",
    "Subscribe": "callback: in the kitchen\nstream: full\n",
    "Request and reply": "144\n25\nnobody\n",
    "asyncio": "alarms/fire in the kitchen\n",
    "Select loops": "in the kitchen\n",
}
PROGRAMS = {
    title: program
    for title, section in re.findall(r"(?ms)^##? ([^\n]+)\n(.*?)(?=^## |\Z)", README)
    for program in re.findall(r"```python\n(.*?)```", section, re.DOTALL)
}


@pytest.mark.parametrize("title", SAID)
def test_the_programs_of_the_readme_run(daemon: DaemonProcess, title: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAMS[title]],
        env={**os.environ, "BCCN_SOCKET": str(daemon.socket), "PYTHONPATH": str(CLIENTS / "python")},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (SAID[title], "", 0)


def test_every_program_of_the_readme_is_run() -> None:
    assert PROGRAMS.keys() == SAID.keys()
    assert README.count("```python") == len(SAID)
