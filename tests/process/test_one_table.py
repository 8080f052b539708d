"""Settings of a program with one table, by an example: where they come from, and what is said of mistakes."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from bccnd.errors import ConfigError
from bccnd.process.one_table import OneTable


class Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    pattern: str
    most: int = 1


class Example(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    where: str = Field(description="where")
    import_: tuple[str, ...] = Field(default=(), description="what", alias="import")
    most: int = Field(default=3, ge=1, strict=True, description="how many: 100%")
    file: Path | None = Field(default=None, description="a file")
    row: tuple[Row, ...] = Field(default=(), description="rows")


EXAMPLE = OneTable(
    "example",
    Example,
    "example",
    "EXAMPLE_",
    Path("/no/such/file"),
    "Do.",
    "examples:",
    {"where": "URL"},
    ("row",),
)


def written(folder: Path, text: str) -> str:
    file = folder / "example.toml"
    file.write_text(text)
    return str(file)


def test_flags_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[example]\nwhere = "file"\nmost = 7\nimport = ["f"]\n')
    found = EXAMPLE.load(["--where", "flag"], {"EXAMPLE_CONFIG": file, "EXAMPLE_IMPORT": "a, b"})
    assert (found.settings.where, found.settings.most, found.settings.import_) == ("flag", 7, ("a", "b"))
    assert found.origins == {"where": "--where", "import": "EXAMPLE_IMPORT", "most": file}
    assert (found.file, found.check_only, found.quiet) == (file, False, False)
    assert EXAMPLE.load(["--where", "x", "--check", "--quiet"], {}).check_only


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("[example]\nmost = 0\n", ["{file}: most: must be at least 1 (got 0)", "--where: must be given"]),
        ("[example]\nwher = 'x'\n", ["{file}: wher: unknown setting (did you mean where?)"]),
        ("where = 'x'\n", ["{file}: has one table, [example], and nothing outside of it"]),
        (
            "[example]\nwhere = 'x'\n[[example.row]]\npattern = 'a'\n[[example.row]]\nmost = 'b'\n",
            [
                "{file}: [[example.row]] 2: pattern: must be given",
                "{file}: [[example.row]] 2: most: Input should",
            ],
        ),
    ],
)
def test_each_mistake_is_one_line(tmp_path: Path, text: str, lines: list[str]) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        EXAMPLE.load(["--config", file], {})
    said = str(caught.value).splitlines()
    assert all(any(each.startswith(line.format(file=file)) for each in said) for line in lines), said


def test_unknown_variables_and_flags_are_mistakes() -> None:
    with pytest.raises(ConfigError, match=r"^EXAMPLE_ROW: unknown setting$"):
        EXAMPLE.load(["--where", "x"], {"EXAMPLE_ROW": "x"})
    with pytest.raises(ConfigError, match=r"^unrecognized arguments: --row x \(see example --help\)$"):
        EXAMPLE.load(["--where", "x", "--row", "x"], {})
    with pytest.raises(ConfigError, match=r"^/nowhere: no such file$"):
        EXAMPLE.load(["--config", "/nowhere"], {})
    with pytest.raises(ConfigError, match=r'^EXAMPLE_MOST: must be a whole number \(got "x"\)$'):
        EXAMPLE.load(["--where", "x"], {"EXAMPLE_MOST": "x"})


def test_what_is_printed_reads_back_to_the_same(tmp_path: Path) -> None:
    rows = '[[example.row]]\npattern = "p"\n[[example.row]]\npattern = "q"\nmost = 2\n'
    text = f'[example]\nwhere = "x"\nimport = ["a"]\n{rows}'
    found = EXAMPLE.load(["--config", written(tmp_path, text), "--most", "9"], {})
    printed = EXAMPLE.effective(found)
    assert "most = 9  # from --most\n# file is not set" in printed
    assert EXAMPLE.load(["--config", written(tmp_path, printed)], {}).settings == found.settings


def test_help_names_each_setting_but_tables() -> None:
    text = EXAMPLE.command_line().format_help()
    assert "--where URL" in text
    assert "how many: 100% (default: 3)" in text
    assert "--row" not in text
