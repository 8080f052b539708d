"""Episodes: when one begins, when it is over, and that each is reported once at either end."""

from bccnd.relay.slow import CALM_SECONDS, Episode, SlowClients, Trouble
from tests.relay.fakes import Bus, datagram, messages, slow


def reports(bus: Bus) -> tuple[list[Episode], list[Episode]]:
    return bus.relay._delivery.slow.reports(bus.now)


def test_it_begins_with_the_first_loss_and_is_reported_once():
    bus = Bus()
    reader, publisher = slow(bus, "drop-oldest"), bus.connect()
    publisher.say(*messages(*range(4)))
    assert reports(bus) == ([], [])
    publisher.say(*messages(*range(3)))
    [episode], over = reports(bus)
    assert (episode.session, episode.trouble, episode.lost) == (reader.session, Trouble.LOSES, 3)
    assert over == []
    publisher.say(*messages(*range(10)))
    assert reports(bus) == ([], [])
    assert episode.lost == 13


def test_it_is_over_when_everything_has_been_taken():
    bus = Bus()
    reader, publisher = slow(bus, "drop-newest"), bus.connect()
    publisher.say(*messages(*range(6)))
    [episode], _ = reports(bus)
    bus.tick(CALM_SECONDS + 5)
    reader.take(2)
    assert reports(bus) == ([], [])
    reader.take()
    assert reports(bus) == ([], [episode])
    assert (episode.ended, episode.lost, episode.left) == (bus.now, 2, False)
    assert reports(bus) == ([], [])
    assert len(bus.relay._delivery.slow) == 0


def test_client_slow_again_and_again_is_reported_once():
    bus = Bus()
    reader, publisher = slow(bus, "drop-oldest"), bus.connect()
    begun: list[Episode] = []
    for _ in range(int(CALM_SECONDS)):
        reader.stop_reading()
        publisher.say(*messages(*range(5)))
        reader.take()
        begun += reports(bus)[0]
        bus.tick(0.9)
    [episode] = begun
    assert reports(bus) == ([], [])
    bus.tick(1.5)
    assert reports(bus) == ([], [episode])
    assert episode.lost == 10


def test_the_next_one_counts_anew():
    bus = Bus()
    reader, publisher = slow(bus, "drop-oldest"), bus.connect()
    for lost in (1, 2):
        publisher.say(*messages(*range(4 + lost)))
        reader.take()
        bus.tick(CALM_SECONDS + 1)
        [episode], over = reports(bus)
        assert (over, episode.lost) == ([episode], lost)
        reader.stop_reading()


def test_leaving_ends_it():
    bus = Bus()
    reader, publisher = slow(bus, "drop-oldest"), bus.connect()
    publisher.say(*messages(*range(6)))
    reader.leave()
    [episode], over = reports(bus)
    assert over == [episode]
    assert episode.left
    assert episode.lost == 6  # what still waited is lost as well


def test_holding_publishers_for_a_moment_is_what_block_is_for():
    bus = Bus()
    reader, publisher = slow(bus, "block"), bus.connect()
    publisher.say(*messages(*range(4)))
    bus.tick(0.5)
    assert publisher.held
    assert reports(bus) == ([], [])
    bus.tick(0.6)
    [episode], _ = reports(bus)
    assert (episode.session, episode.trouble, episode.lost) == (reader.session, Trouble.HOLDS, 0)


def test_block_client_that_is_closed():
    bus = Bus(block_seconds=5)
    reader, publisher = slow(bus, "block"), bus.connect()
    publisher.say(*messages(*range(4)))
    bus.hear(datagram(b"x", 1, b"a"))
    bus.tick(6)
    [episode], over = reports(bus)
    assert bus.closed == {reader.name: "slow"}
    assert over == [episode]
    assert episode.trouble is Trouble.LOSES


def test_client_that_holds_itself_is_not_slow():
    bus = Bus()
    client = slow(bus, "block")
    client.say(*messages(*range(4)))
    assert client.held
    bus.tick(3)
    assert reports(bus) == ([], [])


def test_nothing_to_report():
    nobody = SlowClients()
    bus = Bus()
    session = bus.connect().session
    nobody.catches_up(session, 1.0)
    nobody.leaves(session, 2.0)
    assert nobody.reports(3.0) == ([], [])
    assert nobody.get(session) is None
