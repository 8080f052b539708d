"""Replacing the relay in the middle of a script changes nothing; state that is damaged is refused with one line.

The first number says which: 0 to 3 play a script of ``fuzz_relay`` in which every eighth step or so the relay is
replaced by one made of its state; from 4 on the state of a relay is changed in some places by the rest of the input.
"""

import pickle
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from bccnd.errors import ConfigError
from bccnd.relay.core import Relay
from bccnd.relay.succession import restore, state_of
from bccnd.restart import load_state
from tests.fuzz.fuzz_relay import Play, observe
from tests.fuzz.fuzz_relay import seeds as relay_seeds
from tests.fuzz.fuzzer import Script

PLAIN = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "plain",
    b"",
    b"here/p/11",
    (),
    (b"a", 1),
    [],
    [[0]],
    {},
]
EVENTFUL = bytes(
    [0, 0, 0, 0, 0, 0, 0, 0, 4, 8, 0, 1, 5, 6, 0, 5, 2, 0, 0, 8, 1, 1, 0, 1, 2, 65, 66, 0, 0, 4, 1, 67, 0]
)


def one_input(data: bytes) -> None:
    script = Script(data)
    if script.number(8) < 4:
        Succeeding(Script(script.rest())).run()
        return
    play = Play(Script(EVENTFUL))
    while play.script:
        play.step()
    state = plainly(state_of(play.bus.relay))
    ports = ports_of(play.bus.relay)
    for _ in range(script.number(3) + 1):
        change(state, script)
    try:
        restore(play.bus.new_relay(), state, ports)
    except ConfigError as error:
        assert str(error).isprintable()


def ports_of(relay: Relay) -> dict[int, int]:
    return {number: session.port for number, session in relay.sessions.items()}


class Succeeding(Play):
    def step(self) -> None:
        if self.script.number(8) == 0:
            self.succeed()
        else:
            super().step()

    def succeed(self) -> None:
        bus = self.bus
        before = state_of(bus.relay)
        relay = bus.new_relay()
        restore(relay, plainly(before), ports_of(bus.relay))
        assert plainly(state_of(relay)) == plainly(before)
        for client in self.clients:
            client.session = relay.sessions.get(client.session.number, client.session)
        bus.relay = relay
        bus.watched = set()
        observe(bus, self.model)
        bus.settle()
        bus.read()


def plainly(state: dict[str, Any]) -> dict[str, Any]:
    """As it comes out at the other end."""
    return load_state(BytesIO(pickle.dumps(state, protocol=4)))


def change(state: Any, script: Script) -> None:
    """Take one value out, or put another in its place, somewhere in ``state``."""
    place = state
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = keys[script.number(len(keys))]
        if isinstance(place[key], tuple):
            place[key] = list(place[key])
        if isinstance(place[key], dict | list) and script.number(4):
            place = place[key]
        elif script.number(2):
            del place[key]
            return
        else:
            place[key] = PLAIN[script.number(len(PLAIN))]
            return


def seeds() -> Iterable[bytes]:
    for number, seed in enumerate(relay_seeds()):
        if number % 5 == 0:
            settings, rest = seed[:8], seed[8:]
            yield b"\0" + settings + b"".join(bytes([1]) + rest[:7] for _ in range(2)) + b"\0\1" + rest
    for key in range(10):
        for choice in range(len(PLAIN)):
            yield bytes([4, 0, key, 1, choice, 0, choice])
            yield bytes([4, 0, key, 1, 0, 1, choice, 1, 0, choice])
