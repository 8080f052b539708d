"""A short run of every fuzzer, the inputs of earlier findings, and the report of a new one.

``pyproject.toml`` says where atheris has wheels. Elsewhere hypothesis makes the inputs.
"""

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement

from tests.fuzz.fuzzer import HERE, ROOT, fuzzers, load
from tests.fuzz.run import run
from tests.needs import cannot_run
from tests.packet_client import PATIENCE

SECONDS = 1  # for each fuzzer, besides its start
EXAMPLES = 500  # of hypothesis, which knows nothing of coverage
FOUND_ONCE = sorted(HERE.glob("corpus/*/*"))


def atheris_is_to_be_had() -> bool:
    """Whether the ``dev`` extra installs atheris on this Python and machine."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (marker,) = [Requirement(one).marker for one in extras["dev"] if one.startswith("atheris")]
    return marker is None or marker.evaluate()


def require_atheris() -> None:
    if importlib.util.find_spec("atheris") is None:
        cannot_run("atheris is not installed: pip install -e '.[dev]'")


def judge_made_up(one_input: Callable[[bytes], None], seeds: list[bytes], examples: int) -> None:
    """Runs the fuzzer under hypothesis, on seeds with a piece replaced and on random bytes."""
    replaced = st.builds(
        lambda seed, at, length, piece: (
            seed[: at % (len(seed) + 1)] + piece + seed[at % (len(seed) + 1) + length :]
        ),
        st.sampled_from(seeds),
        st.integers(0, 4096),
        st.integers(0, 8),
        st.binary(max_size=8),
    )

    @settings(max_examples=examples, deadline=None)
    @given(st.one_of(replaced, st.sampled_from(seeds), st.binary(max_size=300)))
    def judge(data: bytes) -> None:
        one_input(data)

    judge()


@pytest.mark.parametrize("name", fuzzers())
def test_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    path = fuzzers()[name]
    fuzzer = load(path)
    least = getattr(fuzzer, "EXECUTIONS", 100)
    if not atheris_is_to_be_had():
        judge_made_up(fuzzer.one_input, list(fuzzer.seeds()), min(EXAMPLES, 5 * least))
        return
    require_atheris()
    executions = 0
    while executions <= least:  # on a slow machine in several runs, each behind the corpus of the one before
        report = run(path, SECONDS, tmp_path / "corpus", tmp_path / "findings")
        assert not report.findings, report.output
        assert report.executions, report.output
        executions += report.executions


@pytest.mark.parametrize("path", FOUND_ONCE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_earlier_findings_stay_fixed(path: Path) -> None:
    load(fuzzers()[path.parent.name]).one_input(path.read_bytes())


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """A folder with a fuzzer whose parser fails on four bytes."""
    (tmp_path / "fuzz_faulty.py").write_text(
        "def one_input(data):\n    if len(data) > 3:\n        raise IndexError('four')\n\n"
        "def seeds():\n    yield b'abc'\n"
    )
    return tmp_path


def fuzz(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, HERE / "run.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)


def test_a_finding_is_kept_and_reported(faulty: Path) -> None:
    if atheris_is_to_be_had():
        require_atheris()
        findings = faulty / "findings"
        done = fuzz("--fuzzers", faulty, "--findings", findings, "--seconds", 20)
        assert done.returncode == 1, done.stdout + done.stderr
        (finding,) = findings.iterdir()
        assert "IndexError: four" in done.stdout
        assert str(finding) in done.stdout
        assert len(finding.read_bytes()) > 3
    else:
        finding = faulty / "finding"
        finding.write_bytes(b"four")
    again = fuzz("--fuzzers", faulty, "--replay", finding, "faulty")
    assert again.returncode == 1
    assert again.stderr.endswith("IndexError: four\n")


def test_hypothesis_finds_the_same_fault(faulty: Path) -> None:
    fuzzer = load(faulty / "fuzz_faulty.py")
    with pytest.raises(IndexError):
        judge_made_up(fuzzer.one_input, list(fuzzer.seeds()), EXAMPLES)


def test_an_unknown_fuzzer_is_wrong_usage(faulty: Path) -> None:
    done = fuzz("--fuzzers", faulty, "fualty")
    assert (done.returncode, done.stderr) == (2, "no such fuzzer: fualty; there are: faulty\n")
