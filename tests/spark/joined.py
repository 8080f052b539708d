"""A JVM that programs of tests join, one after another: only the first of them loads and warms up what Spark runs.

    test run -- as pyspark does -->  JVM  <-- PYSPARK_GATEWAY_PORT, PYSPARK_GATEWAY_SECRET --  python -m MODULE ...

Rules
- A program that joins is what it is under ``spark-submit``, which hands over a JVM in the same way. What the command
  chooses when it starts one (heap, options, partitions) is not there; ``tests/spark/spark-defaults.conf`` is.
- One program at a time, as Spark allows one context in a JVM. Its context, settings and views end with it.
- A program that fails or is killed may leave a context. Its JVM is ended, and the next program has another. One that
  ends well without stopping its context fails the next: Spark refuses a second one.
- Directories and variables that Spark reads itself, such as SPARK_LOCAL_DIRS, are those of the JVM. A test of
  starting, of kills, or of a machine that lacks something starts its own.
- It ends with the test run, which holds its stdin.
"""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import pytest

END_SECONDS = 60
_running: list["_JVM"] = []


class _JVM:
    def __init__(self) -> None:
        from pyspark.java_gateway import launch_gateway

        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the JVM
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
            gateway = launch_gateway(popen_kwargs={"stdout": self._log, "stderr": self._log})
        self._process = gateway.proc
        parameters = gateway.gateway_parameters
        self.address = {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }
        gateway.close()

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def end(self) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program that joins, to its end. If it fails, its stderr has what the JVM said, too."""
    if not _running:
        _running.append(_JVM())
    jvm = _running[0]
    environ = {**os.environ, **jvm.address, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env=environ, check=False
        )
        if done.returncode:
            done.stderr += jvm.said()
    finally:
        if done is None or done.returncode:
            end()
    return done


@atexit.register
def end() -> None:
    """End the JVM, if there is one; the next program starts another."""
    while _running:
        _running.pop().end()
