"""What connections of the same user, and of others, get of a round."""

import asyncio
from math import log

from bccnd.mux.limits import CHUNKS, SHARE
from bccnd.mux.turns import Turns


async def test_one_connection_has_all_and_many_share_it() -> None:
    turns = Turns(asyncio.get_running_loop())
    for _ in range(3):
        assert turns.share(1) == CHUNKS
        await asyncio.sleep(0)
    many = CHUNKS // SHARE
    first = [turns.share(1) for _ in range(many)]
    assert sum(first) < CHUNKS * (log(many) + 1)
    assert turns.share(2) == CHUNKS
    await asyncio.sleep(0)
    assert [turns.share(1) for _ in range(many)] == [SHARE] * many
    assert turns.share(1) == SHARE
    await asyncio.sleep(0)
    assert turns.share(2) == CHUNKS
    await asyncio.sleep(0)
    assert turns.share(1) == CHUNKS
