"""What connections of the same user, and of others, get of a round."""

import asyncio
from collections.abc import Callable

import pytest

from bccnd.mux.turns import Turns

MOST, LEAST = 100, 10


@pytest.fixture
async def turns() -> Turns:
    return Turns(asyncio.get_running_loop(), MOST, LEAST)


class Worker:
    """``todo``: work that it has; ``had``: the shares that it was given."""

    def __init__(self, turns: Turns, uid: int, todo: int) -> None:
        self.turns, self.uid, self.todo = turns, uid, todo
        self.had: list[int] = []

    def begin(self) -> bool:
        return self.turns.take(self.uid, self.turn)

    def turn(self, share: int) -> int:
        self.had.append(share)
        done = min(share, self.todo)
        self.todo -= done
        if self.todo:
            self.turns.wait(self.uid, self.turn)
        return done


async def rounds(is_over: Callable[[], object]) -> int:
    count = 0
    while not is_over():
        await asyncio.sleep(0)
        count += 1
    return count


async def test_one_alone_has_all_of_each_round(turns: Turns) -> None:
    worker = Worker(turns, 1, 3 * MOST)
    assert worker.begin()
    assert worker.had == [MOST]
    await rounds(lambda: not worker.todo)
    assert worker.had == [MOST] * 3


async def test_many_share_a_round_and_other_users_have_their_own(turns: Turns) -> None:
    workers = [Worker(turns, 1, 5 * MOST) for _ in range(50)]
    assert [each.begin() for each in workers] == [True] + [False] * 49
    other = Worker(turns, 2, 1)
    assert other.begin()
    todo = sum(each.todo for each in workers)
    for _ in range(20):
        await asyncio.sleep(0)
        assert todo - sum(each.todo for each in workers) <= MOST + LEAST
        todo = sum(each.todo for each in workers)
        assert Worker(turns, 2, 1).begin(), "however many wait of another user"
    turns_had = [len(each.had) for each in workers]
    assert (min(turns_had), max(turns_had)) == (4, 5)
    assert {share for each in workers[1:] for share in each.had} == {LEAST}


async def test_who_has_little_to_do_does_not_wait_for_all(turns: Turns) -> None:
    workers = [Worker(turns, 1, 100 * MOST) for _ in range(10)]
    for each in workers:
        each.begin()
    late = Worker(turns, 1, 1)
    assert not late.begin()
    await rounds(lambda: not late.todo)
    assert max(sum(each.had) for each in workers) < 3 * MOST


async def test_a_turn_that_fails_takes_none_of_the_others(turns: Turns) -> None:
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))

    def fail(_share: int) -> int:
        raise ZeroDivisionError

    assert Worker(turns, 1, MOST).begin()
    worker = Worker(turns, 1, 1)
    turns.take(1, fail)
    assert not worker.begin()
    turns.take(1, fail)
    await rounds(lambda: len(faults) == 2)
    await rounds(lambda: Worker(turns, 1, 0).begin())
    assert worker.had == [MOST // 2]
