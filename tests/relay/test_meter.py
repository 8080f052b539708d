"""What the packets of a client have cost: one count, whoever does the work."""

from bccnd.relay.meter import Meter
from bccnd.relay.pattern import NODE_STEPS
from bccnd.relay.router import LOOKUP_STEPS
from tests.relay.fakes import Bus


def test_it_begins_at_nothing():
    assert Meter().steps == 0


def test_a_relay_has_one():
    """A channel that is looked up costs the same whoever asks for it; one that is known costs nothing."""
    bus = Bus()
    meter, route = bus.relay.state.outgoing, bus.relay.state.router.route
    assert isinstance(meter, Meter)
    meter.steps = 0
    route(b"a/b")
    assert meter.steps >= LOOKUP_STEPS + NODE_STEPS
    meter.steps = 0
    route(b"a/b")
    assert meter.steps == 0
