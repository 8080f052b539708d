"""A history told in words: a line for each event that matters, with its virtual time.

      0.413127  h0 sends h0/prog/100 #3 to #5
      0.413345  h1 does not hear h0/prog/100 #4: its link
      0.420117  h1 says 'resend: h0/prog/100 1800000000000004 0-0'

A history that nobody reads is not told: ``Silence`` takes the same calls and costs next to nothing.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.network import Sent


class Silence:
    def tell(self, when: float, text: str) -> None:
        """Something happened."""

    def fate(self, when: float, sent: "Sent", words: str, who: str) -> None:
        """What became of a datagram; in ``words``, ``{what}`` stands for it."""


class Story(Silence):
    def __init__(self) -> None:
        self._lines: list[tuple[float, str]] = []

    def tell(self, when: float, text: str) -> None:
        self._lines.append((when, text))

    def fate(self, when: float, sent: "Sent", words: str, who: str) -> None:
        self.tell(when, words.format(what=named(sent), who=who))

    @property
    def lines(self) -> list[str]:
        """In the order of their times."""
        return [f"{when:10.6f}  {text}" for when, text in sorted(self._lines, key=lambda line: line[0])]


def named(sent: "Sent") -> str:
    """A datagram in words."""
    again = " again" if sent.times else ""
    if sent.said:
        publisher, index = sent.said
        return f"{publisher.about(index)}{again}"
    return f"{sent.chan.decode(errors='replace')} of {sent.sender}{again}"


def plan_in_words(plan: Any) -> str:
    """An element or a plan, without what is as usual."""
    unusual = (each for each in fields(plan) if getattr(plan, each.name) != each.default)
    return (
        f"{type(plan).__name__}({', '.join(f'{each.name}={getattr(plan, each.name)!r}' for each in unusual)})"
    )
