"""The uplink's decisions, between a segment and a medium in memory."""

from random import Random

import pytest

from bccnd.uplink.core import (
    CLAIMS_LIMIT,
    EARLY_SECONDS,
    ECHO_SECONDS,
    LAST_SECONDS,
    NAMESAKE_SECONDS,
    SIBLING_SECONDS,
    STATUS_SECONDS,
    Uplink,
)
from bccnd.uplink.journal import Journal, Limits
from bccnd.uplink.options import Options
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.link import Seal, Status, source
from tests.uplink.medium import Faults, Medium
from tests.uplink.segment import Clock, datagram

EVERYTHING = (b">", b"!>", b"!")


class World:
    """Uplinks of several segments at one medium."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.medium, self.clock = Medium(Random(1), faults or Faults()), Clock()
        self.uplinks: list[Uplink] = []

    def uplink(self, name: bytes = b"berlin", hosts: tuple[bytes, ...] = (), **others: object) -> Uplink:
        made = Options(name, **{"export": EVERYTHING, "import_": EVERYTHING, **others})  # type: ignore[arg-type]
        journal = Journal(None, Limits(), self.clock)
        journal.open()
        uplink = Uplink(made, journal, self.clock, self.clock.ns)
        uplink.carrier = self.medium.attach(uplink)
        uplink.hosts(hosts)
        self.uplinks.append(uplink)
        return uplink

    def pass_on(self, seconds: float = 0.0) -> None:
        """All that was offered crosses; then so much time passes."""
        for uplink in self.uplinks:
            uplink.flush()
        self.medium.turn()
        self.clock.now += seconds
        for uplink in self.uplinks:
            if self.clock.now >= uplink.next_deadline():
                uplink.on_deadline()
        self.medium.turn()


def taken(uplink: Uplink) -> list[bytes]:
    found: list[bytes] = []
    while batch := uplink.take():
        found += batch
    return found


def test_a_message_crosses_once_without_its_sum() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    signed = Integrity([b"key" * 8], "hmac").seal(b"relay01/door/7:1:door/in|x")  # type: ignore[arg-type]
    berlin.offer(signed)
    world.pass_on()
    assert taken(paris) == [datagram(1)]
    assert taken(berlin) == []


def test_what_an_uplink_that_died_left_goes_on_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccnd.uplink.inbound.OVER_SECONDS", 3)
    world = World()
    paris, berlin = world.uplink(b"paris"), source(b"berlin", b"0" * 16)
    for number in (1, 3):
        paris.came(number, Seal().numbered(berlin, number, 1, datagram(number)))
    assert taken(paris) == [datagram(1)]
    world.medium.carriers[0].connected = False
    for _ in range(9):
        world.pass_on(1.0)
    assert taken(paris) == []
    world.medium.carriers[0].connected = True
    for _ in range(9):
        world.pass_on(1.0)
    assert taken(paris) == [datagram(3)]


def test_nothing_is_carried_that_is_not_named_on_both_sides() -> None:
    world = World()
    berlin = world.uplink(export=(b"door/>", b"log/>"))
    paris = world.uplink(b"paris", import_=(b"door/>",))
    for seq, chan in enumerate(
        (b"door/in", b"log/all", b"secret", b"local/a", b"heartbeat/a", b"bccnd/ask"), 1
    ):
        berlin.offer(datagram(seq, chan))
    berlin.offer(b"no datagram")
    berlin.offer(datagram(9, b"door/in", src=b"?"))
    world.pass_on()
    assert taken(paris) == [datagram(1)]
    assert berlin.counts["not-exported"] == 4
    assert berlin.counts["unsound"] == 2
    assert paris.counts["not-imported"] == 1


def test_all_crosses_in_order_whatever_the_medium_does() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    got = taken(paris)
    world.medium.faults = Faults(0.2, 0.2, 0.2)
    for seq in range(2, 500):
        berlin.offer(datagram(seq))
        if seq % 3 == 0:
            world.pass_on(0.01)
            got += taken(paris)
    berlin.flush()
    world.medium.settle()
    got += taken(paris)
    assert got == [datagram(seq) for seq in range(1, 500)]
    assert paris.inbound.received.lost == 0


def test_links_with_another_key_hear_nothing_of_each_other() -> None:
    world = World()
    berlin = world.uplink(keys=(b"one" * 8,))
    paris, rome = (
        world.uplink(b"paris", keys=(b"two" * 8, b"one" * 8)),
        world.uplink(b"rome", keys=(b"six" * 8,)),
    )
    berlin.offer(datagram(1))
    world.pass_on()
    assert (taken(paris), taken(rome)) == ([datagram(1)], [])
    assert rome.refused["key"] >= 1


def test_a_new_key_holds_for_what_waited_under_the_old_one() -> None:
    world = World()
    berlin, paris = world.uplink(keys=(b"old" * 8,)), world.uplink(b"paris", keys=(b"new" * 8,))
    world.medium.carriers[0].connected = False
    berlin.offer(datagram(1))
    world.pass_on()
    berlin.reconfigure(Options(b"berlin", keys=(b"new" * 8,), export=EVERYTHING))
    world.medium.carriers[0].connected = True
    world.pass_on(2.0)
    assert taken(paris) == [datagram(1)]


# --- what goes around ---


def test_what_came_by_the_carrier_does_not_go_back() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    for each in taken(paris):
        paris.offer(each)  # as the segment brings it, by another uplink
    world.pass_on(2 * ECHO_SECONDS)
    assert (taken(berlin), taken(paris)) == ([], [])
    assert paris.counts["came-by-carrier"] == 1


def test_what_a_sibling_was_faster_with_does_not_go_back() -> None:
    """It is on the segment before it comes by the carrier."""
    world = World()
    berlin, paris, sibling = world.uplink(), world.uplink(b"paris"), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    assert taken(sibling) == taken(paris) == [datagram(1)]
    berlin.offer(datagram(2))
    world.medium.carriers[2].connected = False
    world.pass_on(0.1)
    (message,) = taken(paris)
    sibling.offer(message)
    world.pass_on(ECHO_SECONDS / 2)
    world.medium.carriers[2].connected = True
    world.pass_on(2 * ECHO_SECONDS)
    assert sibling.outbound.sent.messages == 0
    assert sibling.counts["came-by-carrier"] == 1
    assert taken(sibling) == [message]


def test_what_came_another_way_goes_on_in_order() -> None:
    """A ring: paris hears berlin by this carrier no more, but on its segment, by another one."""
    world = World()
    berlin, paris, rome = world.uplink(), world.uplink(b"paris"), world.uplink(b"rome")
    berlin.offer(datagram(1))
    world.pass_on()
    assert taken(paris) == taken(rome) == [datagram(1)]
    world.medium.carriers[0].connected = False
    for seq in range(2, 9):
        paris.offer(datagram(seq))
    assert paris.next_deadline() <= world.clock.now + ECHO_SECONDS
    world.pass_on(0.5)
    assert taken(rome) == []
    world.pass_on(ECHO_SECONDS)
    world.pass_on(ECHO_SECONDS)
    assert taken(rome) == [datagram(seq) for seq in range(2, 9)]


def test_what_is_kept_back_takes_bounded_memory() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris", hold_bytes=50_000)
    berlin.offer(datagram(1))
    world.pass_on()
    for seq in range(2, 1000):
        paris.offer(datagram(seq))
    assert paris._echo_bytes <= 50_000
    paris.flush()
    assert paris.outbound.sent.messages > 800


def test_two_uplinks_of_a_segment_hear_nothing_of_each_other() -> None:
    world = World()
    berlin, sibling, paris = world.uplink(), world.uplink(), world.uplink(b"paris")
    for each in (berlin, sibling):
        for seq in range(1, 9):
            each.offer(datagram(seq))
    world.pass_on()
    assert taken(berlin) == taken(sibling) == []
    assert taken(paris) == [datagram(seq) for seq in range(1, 9)], "the second copies are dropped here"
    assert paris.inbound.received.late == 8
    assert len(berlin.facts()["siblings"]) == 1
    assert not berlin.facts()["copied"]


def test_what_waited_for_long_is_dropped_after_its_copies() -> None:
    world = World()
    berlin, sibling, paris = world.uplink(), world.uplink(), world.uplink(b"paris")
    world.medium.carriers[1].connected = False
    for seq in range(1, 3000):
        berlin.offer(datagram(seq))
        sibling.offer(datagram(seq))
        if seq % 10 == 0:
            world.pass_on(0.1)
    world.pass_on()
    assert len(taken(paris)) == 2999
    world.medium.carriers[1].connected = True
    for _ in range(20):
        world.pass_on(1.0)
    assert sibling.outbound.waiting == 0
    assert taken(paris) == []


def test_who_joins_a_sibling_keeps_all_back_for_a_second() -> None:
    """What the sibling alone has heard comes by its link, and is not to be overtaken."""
    world = World()
    berlin, sibling, paris = world.uplink(), world.uplink(), world.uplink(b"paris")
    world.pass_on(STATUS_SECONDS)  # they hear of each other
    berlin.offer(datagram(1))
    berlin.flush()
    sibling.joined()  # it has not heard the first one
    for each in (sibling, berlin):
        each.offer(datagram(2))
    world.medium.faults = Faults(late=1.0)
    world.pass_on(EARLY_SECONDS / 2)
    world.medium.faults = Faults()
    assert sibling.outbound.sent.messages == 0
    world.pass_on()
    assert taken(paris) == [datagram(1), datagram(2)]
    assert sibling.next_deadline() <= world.clock.now + EARLY_SECONDS
    world.pass_on(EARLY_SECONDS)
    sibling.offer(datagram(3))
    world.pass_on()
    assert sibling.outbound.sent.messages == 2
    assert taken(paris) == [datagram(3)]


def test_a_sibling_is_known_after_a_restart() -> None:
    world = World()
    berlin, sibling = world.uplink(), world.uplink()
    world.pass_on(STATUS_SECONDS)
    assert sibling._journal.siblings == (berlin.src,)
    assert world.uplink(b"paris")._early_until is None, "nobody is there to wait for"
    again = Uplink(Options(b"berlin"), sibling._journal, world.clock, world.clock.ns)
    assert again._early_until == world.clock.now + EARLY_SECONDS


def test_what_is_kept_back_for_a_sibling_is_bounded() -> None:
    world = World()
    world.uplink()
    sibling = world.uplink(hold_bytes=50_000)
    world.pass_on(STATUS_SECONDS)
    sibling.joined()
    for seq in range(1, 1000):
        sibling.offer(datagram(seq))
    assert sibling._early_bytes == 0
    sibling.flush()
    assert sibling.outbound.sent.messages == 999


def test_what_comes_while_all_is_kept_back_does_not_go_back() -> None:
    """At the start nobody knows which hosts are elsewhere."""
    world = World()
    world.uplink()
    sibling, paris = world.uplink(), world.uplink(b"paris")
    world.pass_on(STATUS_SECONDS)
    sibling.joined()
    brought = datagram(1, src=b"mon01/monitor/4")
    sibling.offer(brought)  # the other uplink was faster
    paris.offer(brought)
    world.pass_on()
    assert taken(sibling) == [brought]
    world.pass_on(EARLY_SECONDS)
    assert sibling.outbound.sent.messages == 0
    assert sibling.counts["came-by-carrier"] == 1


def test_a_source_that_restarts_is_heard_by_whichever_link() -> None:
    world = World()
    berlin, sibling, paris = world.uplink(), world.uplink(), world.uplink(b"paris")
    for seq in (5000, 5001, 1, 2):
        for each in (berlin, sibling):
            each.offer(datagram(seq))
        world.pass_on()
    heard = taken(paris)
    assert [datagram(seq) for seq in (5000, 5001, 1, 2)] == list(dict.fromkeys(heard))
    world.medium.carriers[0].connected = False
    sibling.offer(datagram(3))
    world.pass_on()
    assert taken(paris) == [datagram(3)]


def test_who_has_a_copy_of_the_journal_is_found_out() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    forged = Seal().numbered(berlin.src, 99, 1, b"")
    paris.carrier.publish(1, forged, b"")
    world.pass_on()
    assert berlin.facts()["copied"]


def test_a_segment_of_the_same_name_is_found_out() -> None:
    """Its uplink names hosts, and none of them is here; that of a sibling does as soon as it has looked."""
    world = World()
    berlin, other = world.uplink(hosts=(b"relay01", b"relay02")), world.uplink(hosts=(b"mon01",))
    sibling = world.uplink(hosts=(b"relay02",))
    for _ in range(2):
        world.pass_on(STATUS_SECONDS)
    assert not any(row["namesake"] for row in berlin.facts()["siblings"])
    for _ in range(round(NAMESAKE_SECONDS / STATUS_SECONDS)):
        world.pass_on(STATUS_SECONDS)
    rows = {row["instance"]: row for row in berlin.facts()["siblings"]}
    there, here = (rows[each.src.rpartition(b"/")[2].decode()] for each in (other, sibling))
    assert (there["namesake"], there["hosts"]) == (True, ["mon01"])
    assert (here["namesake"], here["hosts"]) == (False, ["relay02"])
    assert [row["namesake"] for row in other.facts()["siblings"]] == [True, True]
    world.medium.carriers[1].connected = False
    world.clock.now += SIBLING_SECONDS
    world.pass_on(STATUS_SECONDS)
    assert [row["hosts"] for row in berlin.facts()["siblings"]] == [["relay02"]], (
        "who is gone is shown no more"
    )


# --- directed messages ---


def test_directed_messages_go_where_their_host_is() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris", hosts=(b"mon01",))
    rome = world.uplink(b"rome", hosts=(b"log01",))
    world.pass_on(STATUS_SECONDS)
    request = datagram(1, b"!mon01/monitor/4", src=b"relay01/door/7")
    berlin.offer(request)
    berlin.offer(datagram(2, b"!relay01/door/8"))
    berlin.offer(datagram(3, b"!nobody/door/8"))
    world.pass_on()
    assert (taken(paris), taken(rome)) == ([request], [])
    assert berlin.counts["no-home"] == 2
    assert rome.counts["elsewhere"] == 1
    answer = datagram(1, b"!relay01/door/7", src=b"mon01/monitor/4")
    paris.offer(answer)
    world.pass_on()
    assert taken(berlin) == [answer]


def test_a_source_that_was_heard_can_be_answered_at_once() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    assert taken(paris) == [datagram(1)]
    paris.offer(datagram(1, b"!relay01/door/7", src=b"mon01/monitor/4"))
    world.pass_on()
    assert taken(berlin) == [datagram(1, b"!relay01/door/7", src=b"mon01/monitor/4")]


def test_nobody_brings_messages_of_a_host_of_this_segment() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris")
    paris.offer(datagram(5))
    paris.offer(datagram(6))
    paris.offer(datagram(1, src=b"relay011/door/7"))
    world.pass_on()
    assert taken(berlin) == [datagram(1, src=b"relay011/door/7")]
    assert (berlin.counts["claimed"], berlin.claims) == (2, {b"relay01/door/7": b"paris"})
    berlin.offer(datagram(5))  # what was claimed goes out when its source says it
    world.pass_on()
    assert taken(paris) == [datagram(5)]
    berlin.hosts(())  # it has moved
    paris.hosts((b"relay01",))
    paris.offer(datagram(7))
    world.pass_on()
    assert taken(berlin) == [datagram(7)]


def test_what_comes_back_around_a_ring_is_no_claim() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris")
    berlin.offer(datagram(5))
    paris.offer(datagram(5))  # it came another way, and paris is too quick
    world.pass_on()
    assert taken(berlin) == []
    assert (berlin.counts["echo"], berlin.counts["claimed"], berlin.claims) == (1, 0, {})


def test_a_setting_allows_the_names_of_this_segment() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",), local_names=True), world.uplink(b"paris")
    paris.offer(datagram(5))
    world.pass_on()
    assert taken(berlin) == [datagram(5)]


def test_sources_that_were_claimed_are_named_up_to_a_bound() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris")
    for number in range(CLAIMS_LIMIT + 10):
        paris.offer(datagram(1, src=b"relay01/door/%d" % number))
    world.pass_on()
    assert (len(berlin.claims), berlin.counts["claimed"]) == (CLAIMS_LIMIT, CLAIMS_LIMIT + 10)


def test_hosts_beyond_one_status_are_named_in_turn() -> None:
    world = World()
    hosts = tuple(b"host-%03d.site.example" % n for n in range(300))
    world.uplink(hosts=hosts)
    paris = world.uplink(b"paris")
    for _ in range(10):
        world.pass_on(STATUS_SECONDS)
    (link,) = paris.facts()["links"]
    assert sorted(link["hosts"]) == [host.decode() for host in hosts]


# --- time ---


def test_a_status_is_said_every_second_and_soon_after_the_last() -> None:
    world = World()
    berlin = world.uplink()
    begun = world.clock.now
    berlin.on_deadline()
    said = [0.0]
    berlin.offer(datagram(1))
    assert berlin.next_deadline() <= world.clock.now, "what was offered goes at once"
    berlin.flush()
    carrier = world.medium.carriers[0]
    while world.clock.now < begun + 3.0:
        count = carrier.said
        world.clock.now = max(world.clock.now, berlin.next_deadline())
        berlin.on_deadline()
        said += [round(world.clock.now - begun, 3)] * (carrier.said - count)
    assert said == [0.0, *LAST_SECONDS, 1.0, 2.0, 3.0]


def test_the_loss_of_the_last_message_shows_within_a_second() -> None:
    world = World()
    berlin, paris = world.uplink(batch_bytes=0), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    paris.carrier.connected = False
    berlin.offer(datagram(2))
    world.medium.turn()
    world.pass_on(LAST_SECONDS[0])
    world.medium.order[-2:-1] = (
        [b""] if b":2:bccnd/link|" in world.medium.order[-2] else world.medium.order[-2:-1]
    )
    paris.carrier.connected = True
    world.pass_on()
    assert paris.inbound.received.lost == 1


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_stops_nothing(jump: float) -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on(0.5)
    world.medium.carriers[0].connected = False
    berlin.offer(datagram(2))
    world.pass_on(0.5)
    berlin._unix_ns = lambda: int((world.clock.now + jump) * 1e9)
    clock = berlin._clock
    world.pass_on(1.0)
    assert berlin._clock > clock
    world.medium.carriers[0].connected = True
    world.pass_on(1.0)
    assert taken(paris) == [datagram(1), datagram(2)]


# --- liars ---


def test_invented_links_cost_little_and_no_known_link() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    for seq in range(1, 50):
        berlin.offer(datagram(seq))
        world.pass_on()
    liar = world.uplink(b"liar").carrier
    for n in range(2000):
        src = source(b"many", b"%016x" % n)
        liar.say(Seal().numbered(src, 2**63, 1, datagram(n, src=b"host%d/a/1" % n)))
        liar.say(Seal().status(src, 1, 2**64 - 1, 2**64, [b"host%d" % n]))
        if n % 100 == 0:
            world.pass_on()
    world.pass_on()
    taken(paris)
    berlin.offer(datagram(50))
    world.pass_on()
    assert taken(paris) == [datagram(50)]
    assert len(paris.inbound.links) <= 256
    assert len(paris._homes._links) <= 256
    assert paris.inbound._held_bytes < 1 << 20
    assert len(paris.inbound._due) <= 2048


def test_a_link_that_lies_costs_itself_alone() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris")
    liar = world.uplink(b"liar").carrier
    src = source(b"liar", b"f" * 16)
    for number, floor in ((5, 5), (2**63, 2**63), (6, 6), (2**64 - 1, 2**64 - 1), (7, 1)):
        liar.say(Seal().numbered(src, number, floor, datagram(number % 1000)))
        liar.say(Seal().status(src, 1, 2**64, 2**64, [b"relay01"]))
        berlin.offer(datagram(number % 1000, src=b"relay01/door/8"))
        world.pass_on()
    assert paris.inbound.links[berlin.src].lost == 0
    assert paris.inbound.links[berlin.src].messages == 5


def test_a_link_that_owes_a_number_slows_no_other() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    world.uplink(b"liar").carrier.say(
        Seal().numbered(source(b"liar", b"f" * 16), 2, 1, datagram(1, src=b"x/y/1"))
    )
    world.pass_on()
    for seq in range(1, 101):
        berlin.offer(datagram(seq))
        world.pass_on(0.1)
        taken(paris)
        world.pass_on(0.1)
    (held,) = paris.inbound.links[source(b"liar", b"f" * 16)].held.values()
    assert paris._journal.position == held.position, "it is asked for again after a restart"
    carrier = world.medium.carriers[1]
    assert carrier.hearer is paris
    assert carrier.taken_below > len(world.medium.order) - 10


def test_a_name_that_no_status_can_say_costs_no_other() -> None:
    world = World()
    world.uplink(hosts=(b"relay01", b"ev!l", b"a b", b"", b"relay02"))
    paris = world.uplink(b"paris")
    world.pass_on(STATUS_SECONDS)
    (link,) = paris.facts()["links"]
    assert link["hosts"] == ["relay01", "relay02"]
    assert not paris.refused


def test_a_link_may_begin_at_any_number() -> None:
    world = World()
    paris = world.uplink(b"paris")
    liar = world.uplink(b"liar").carrier
    src = source(b"far", b"f" * 16)
    for number in range(2**63, 2**63 + 5):
        liar.say(Seal().numbered(src, number, number, datagram(number - 2**63 + 1)))
    world.pass_on()
    assert taken(paris) == [datagram(seq) for seq in range(1, 6)]
    assert paris.inbound.received.lost == 0


def test_facts_are_plain_values() -> None:
    world = World()
    berlin, paris = world.uplink(hosts=(b"relay01",)), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on(STATUS_SECONDS)
    taken(paris)
    facts = paris.facts()
    (link,) = facts["links"]
    assert (facts["segment"], facts["imported"], facts["lost"]) == ("paris", 1, 0)
    assert (link["segment"], link["messages"], link["behind"], link["hosts"]) == ("berlin", 1, 0, ["relay01"])
    assert isinstance(Seal().open(world.medium.order[-1]), Status)
