"""One fuzzer under atheris (libFuzzer), in a process of its own: ``engine.py FUZZER.py [libFuzzer arguments]``.

Only the modules of the project are instrumented, the daemon's and the client's. libFuzzer ends the process itself:
0 when the time is up, another code after a finding, which it has written to where ``-artifact_prefix`` says.
"""

import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from tests.fuzz.fuzzer import load  # noqa: E402


def main() -> None:
    with atheris.instrument_imports(include=["bccnd", "bccn"]):
        fuzzer = load(Path(sys.argv[1]))
    atheris.Setup([sys.argv[0], *sys.argv[2:]], fuzzer.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
