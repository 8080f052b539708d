"""What the tests of the uplink share: no journal stays open behind a test."""

from collections.abc import Iterator

import pytest

from bccnd.uplink.journal import Journal


@pytest.fixture(autouse=True)
def _journals_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python warns of a database that nobody closes, and most tests of the core have one in memory."""
    opened: list[Journal] = []
    really = Journal.open

    def open_and_note(journal: Journal) -> None:
        opened.append(journal)
        really(journal)

    monkeypatch.setattr(Journal, "open", open_and_note)
    yield
    for journal in opened:
        journal.close()
