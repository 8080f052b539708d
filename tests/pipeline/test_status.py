"""``bccnd/pipeline/status.py``: the codes that Nagios knows, and that the README names."""

import re
from pathlib import Path

from bccnd.pipeline.status import Status

README = Path(__file__).parents[2] / "bccnd" / "pipeline" / "README.md"


def test_exit_codes_are_those_of_nagios() -> None:
    assert [(each.name, int(each)) for each in Status] == [
        ("OK", 0), ("WARNING", 1), ("CRITICAL", 2), ("UNKNOWN", 3),
    ]  # fmt: skip
    documented = re.findall(r"^\| (\d) \| ", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert documented == [str(int(each)) for each in Status]
