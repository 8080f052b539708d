"""The conversations of ``clients/vectors/bpmux.json``: what goes in, what comes out, what is seen."""

from typing import Any

import pytest

from tests.clients.bpmux.vector import Player
from tests.golden import golden


@pytest.mark.parametrize("piecewise", [False, True], ids=["whole", "byte by byte"])
@pytest.mark.parametrize("conversation", golden("bpmux", "conversations"))
def test_the_endpoint_says_what_the_vector_says(conversation: dict[str, Any], piecewise: bool) -> None:
    player = Player(conversation)
    for step in conversation["steps"]:
        player.play(step, piecewise=piecewise)
