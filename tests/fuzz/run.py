"""Runs the fuzzers under atheris, each in a process of its own, and reports what they find.

    python tests/fuzz/run.py                            all of them, 10 seconds each
    python tests/fuzz/run.py --seconds 600 wire_bccn1   one, ten minutes
    python tests/fuzz/run.py --corpus ~/corpus          begins with what earlier runs kept there, keeps more

Exit code 0: no findings; 1: findings, each printed with its file; 2: wrong usage, or no atheris.
``python tests/fuzz/run.py --replay FILE NAME`` shows a finding again. Once it is fixed, its input goes into
``tests/fuzz/corpus/NAME/``.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "clients" / "python")]

from tests.fuzz.fuzzer import HERE, fuzzers, load  # noqa: E402

LONGEST_INPUT = 4096  # bytes: two of the longest datagrams, four of the longest channels
SLOWEST_INPUT = 10  # seconds for one input: no parser takes a thousandth of it
MOST_MEMORY = 2048  # megabytes: atheris itself takes a few hundred
STARTING = 60  # seconds that a busy machine may take besides

# Lines of libFuzzer that explain no finding.
_CHATTER = ("INFO:", "WARNING:", "#", "stat::")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one fuzzer. ``output`` has the traceback and the input that led to it.

    ``edges`` of the code and ``features`` (edges by how often they were taken): reached by the seeds, and at the end.
    """

    name: str
    executions: int
    seconds: int
    edges: tuple[int, int]
    features: tuple[int, int]
    findings: tuple[Path, ...]
    output: str

    def line(self) -> str:
        (first, last), (few, many) = self.edges, self.features
        return (
            f"{self.name:<22} {self.executions:>9} executions in {self.seconds:>4} s   edges {first:>4} -> {last:>4}"
            f"   features {few:>5} -> {many:>5}   {len(self.findings) or 'no'} findings"
        )


def run(path: Path, seconds: int, corpus: Path, findings: Path) -> Report:
    """Runs one fuzzer. ``corpus`` gets the seeds, the committed inputs and every input that reaches new code."""
    name = path.stem.removeprefix("fuzz_")
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    committed = [file.read_bytes() for file in sorted((path.parent / "corpus" / name).glob("*"))]
    for seed in [*load(path).seeds(), *committed]:
        (corpus / sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    before = set(findings.glob(f"{name}-*"))
    command = [
        sys.executable, str(HERE / "engine.py"), str(path), str(corpus), f"-max_total_time={seconds}",
        f"-artifact_prefix={findings}/{name}-", f"-max_len={LONGEST_INPUT}", f"-timeout={SLOWEST_INPUT}",
        f"-rss_limit_mb={MOST_MEMORY}", "-print_final_stats=1", "-verbosity=1",
    ]  # fmt: skip
    begun = time.monotonic()
    finished = subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds + STARTING,
        check=False,
    )
    took = round(time.monotonic() - begun)
    output = finished.stdout
    found = tuple(sorted(set(findings.glob(f"{name}-*")) - before))
    if finished.returncode and not found:
        raise RuntimeError(f"{name}: ended with {finished.returncode} and no finding:\n{output}")
    reached = [(int(edges), int(features)) for edges, features in re.findall(r"cov: (\d+) ft: (\d+)", output)]
    edges, features = zip(*(reached or [(0, 0)]), strict=True)
    executions = re.search(r"stat::number_of_executed_units: (\d+)", output)
    return Report(
        name,
        int(executions[1]) if executions else 0,
        took,
        (edges[0], edges[-1]),
        (features[0], features[-1]),
        found,
        "\n".join(line for line in output.splitlines() if not line.startswith(_CHATTER)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    known = fuzzers(options.fuzzers)
    names = options.name or list(known)
    if unknown := set(names) - set(known):
        print(f"no such fuzzer: {', '.join(sorted(unknown))}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    if options.replay:
        for name in names:
            load(known[name]).one_input(options.replay.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        print(
            "atheris is not installed: pip install -e ./clients/python -e '.[dev]', or pip install atheris",
            file=sys.stderr,
        )
        return 2
    findings = options.findings or Path(tempfile.mkdtemp(prefix="fuzz-findings-"))
    found = False
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as passing,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        corpus = options.corpus or Path(passing)
        for report in pool.map(
            lambda name: run(known[name], options.seconds, corpus / name, findings), names
        ):
            print(report.line(), flush=True)
            if report.findings:
                found = True
                print(report.output, *report.findings, sep="\n", flush=True)
    if not options.findings and not found:
        findings.rmdir()
    return 1 if found else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="Run the fuzzers; see the head of the file.")
    parser.add_argument("name", nargs="*", help="which; by default all")
    parser.add_argument("--seconds", type=int, default=10, help="for each (default: 10)")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time (default: 1)")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="keep inputs that reach new code in DIR/NAME"
    )
    parser.add_argument(
        "--findings", type=Path, metavar="DIR", help="where to put inputs that fail (default: a new one)"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="only judge this input, with the traceback"
    )
    parser.add_argument("--fuzzers", type=Path, metavar="DIR", default=HERE, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
