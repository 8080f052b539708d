"""The grammars of documents, in the ABNF (RFC 5234) that they use, as regular expressions."""

import re

from tests.documents import Block

ALWAYS = {"DIGIT": "[0-9]", "ALPHA": "[A-Za-z]", "OCTET": r"[\x00-\xff]", "LF": r"\n", "SP": " "}
ELEMENT = re.compile(
    r"""\s*(?P<count>\d*\*\d*|\d+)?
    (?: (?:%s)?"(?P<text>[^"]*)" | %x(?P<first>\w\w)(?:-(?P<last>\w\w))?
      | (?P<rule>[A-Za-z][\w-]*) | (?P<mark>[/\[\]()]) )""",
    re.VERBOSE,
)
MARKS = {"[": "(?:", "]": ")?", "(": "(?:", ")": ")", "/": "|"}


def grammar(blocks: list[Block]) -> dict[str, str]:
    """The rules by their names."""
    text = "".join(block.code for block in blocks if block.language == "abnf")
    return dict(re.findall(r"^([\w-]+) += (.*)$", text, re.MULTILINE))


def names_in(rules: dict[str, str]) -> set[str]:
    """The names that these rules use."""
    used = set(re.findall(r"[a-z][\w-]+", re.sub(r'"[^"]*"', "", " ".join(rules.values()))))
    return used - {"s", "x"}


def expression(rules: dict[str, str], rule: str) -> str:
    """A rule of the grammar as a regular expression."""
    if rule in ALWAYS:
        return ALWAYS[rule]
    found = "".join(_translated(rules, element) for element in ELEMENT.finditer(rules[rule]))
    return f"(?:{found})"


def _translated(rules: dict[str, str], element: re.Match[str]) -> str:
    if element["mark"]:
        return MARKS[element["mark"]]
    if element["text"] is not None:
        found = re.escape(element["text"])
    elif element["first"]:
        found = rf"[\x{element['first']}-\x{element['last'] or element['first']}]"
    else:
        found = expression(rules, element["rule"])
    least, star, most = (element["count"] or "1").partition("*")
    return f"(?:{found}){{{least or 0},{most}}}" if star else f"(?:{found}){{{least}}}"
