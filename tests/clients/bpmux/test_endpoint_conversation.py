"""Two endpoints under random interleavings, random cuts, and one byte of credit at a time."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clients.bpmux.conversation import Conversation


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.integers(1, 60))
def test_what_was_said_is_heard_and_nothing_is_left(data: st.DataObject, steps: int) -> None:
    Conversation(lambda below: data.draw(st.integers(0, below - 1))).run(steps)


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_long_conversations_end_as_well(random) -> None:  # type: ignore[no-untyped-def]
    Conversation(random.randrange).run(300)
