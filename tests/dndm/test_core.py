"""One gateway and single peers: handshakes, results, strictness, and what a peer cannot do to others."""

from typing import Any

import pytest

from bccnd.dndm.core import (
    FAULTS_LIMIT,
    HANDSHAKE_SECONDS,
    HANDSHAKES_LIMIT,
    SILENT_SECONDS,
    Gateway,
)
from bccnd.dndm.effects import Close, Dial, Effect, Publish, Send, Silent, Subscribe, Unwatch, Watch
from bccnd.dndm.options import Options
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import FRAME_LIMIT, Frame
from bccnd.wire.dndm.frame import parse as frame_of
from bccnd.wire.dndm.messages import Known, decode, encode, join
from bccnd.wire.dndm.peers import parse as parse_peer

ME = "tcp://10.0.0.1:1/?bccn=a"
NOW_NS = 1_700_000_000_000_000_000
ROUTE, CHANNEL, TWIN = "T@a.b", "dndm/a/b/T", "local/dndm/a/b/T"


class One:
    """A gateway that is called by hand."""

    def __init__(self, **options: Any) -> None:
        self.core = Gateway(Options(ME, **options))
        self.now = 0.0
        self.effects: list[Effect] = []

    @property
    def at(self) -> Moment:
        return Moment(self.now, NOW_NS + int(self.now * 1e9))

    def open(self, number: int, *, scheme: str = "tcp", dialled: str = "") -> None:
        self.core.connected(number, scheme, self.at, parse_peer(dialled) if dialled else None)

    def hears(self, number: int, message: Known | bytes, **header: Any) -> list[Effect]:
        """What follows."""
        if isinstance(message, bytes):
            data = join(pb.Header(**{"type": pb.MESSAGE, "timestamp": 7, **header}), message)
        else:
            told, body = decode(frame_of(encode(message, 7)))
            told.MergeFrom(pb.Header(**header))
            assert not isinstance(body, bytes)
            data = join(told, body.SerializeToString())
        return self.reads(number, data)

    def reads(self, number: int, data: bytes) -> list[Effect]:
        self.core.received(number, data, self.at)
        return self.core.take()

    def drain(self) -> list[Effect]:
        """All that is due by now."""
        effects = self.core.take()
        while self.core.due <= self.now:
            self.core.tick(self.at)
            effects += self.core.take()
        return effects

    def peer(self, number: int, path: str = "", **adverts: Any) -> list[Effect]:
        """A peer whose handshake is done."""
        self.open(number)
        me = f"tcp://10.0.1.{number}:1/{path}"
        self.hears(number, pb.Handshake(me=me, you=ME, stage=pb.INITIAL))
        return self.hears(number, pb.Handshake(me=me, you=ME, stage=pb.FINAL, **adverts))


def told(effects: list[Effect], number: int) -> list[Known | bytes]:
    """The messages sent to a link."""
    return [
        decode(frame_of(each.data))[1] for each in effects if isinstance(each, Send) and each.link == number
    ]


def closes(effects: list[Effect]) -> list[str]:
    return [each.reason for each in effects if isinstance(each, Close)]


def intent(route: str = ROUTE, **fields: Any) -> pb.Intent:
    return pb.Intent(**{"route": route, "register": True, **fields})


def interest(route: str = ROUTE, **fields: Any) -> pb.Interest:
    return pb.Interest(**{"route": route, "register": True, **fields})


def test_an_acceptor_answers_with_its_adverts_and_peers() -> None:
    one = One()
    one.peer(1, interests=[interest()])
    one.open(2)
    hello = pb.Handshake(me="tcp://10.0.1.2:1/arm", you=ME, stage=pb.INITIAL)
    final, peers = told(one.hears(2, hello), 2)
    assert isinstance(final, pb.Handshake)
    assert (final.me, final.you, final.stage) == (ME, "tcp://10.0.1.2:1/arm", pb.FINAL)
    assert (list(final.interests), list(final.intents)) == ([], [])
    assert peers == pb.Peers(ids=["tcp://10.0.1.1:1/"])


def test_a_dialler_begins_and_ends_the_handshake() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    one.open(2, dialled="tcp://10.0.1.2:1/")
    (initial,) = told(one.core.take(), 2)
    assert initial == pb.Handshake(me=ME, you="tcp://10.0.1.2:1/", stage=pb.INITIAL)
    effects = one.hears(
        2, pb.Handshake(me="tcp://10.0.1.2:1/", you=ME, stage=pb.FINAL, interests=[interest()])
    )
    final, *others = told(effects, 2)
    assert isinstance(final, pb.Handshake)
    assert final.stage == pb.FINAL
    assert [(each.route, each.hops) for each in final.intents] == [(ROUTE, 1)]
    assert Subscribe(CHANNEL) in effects
    assert any(isinstance(each, pb.Intent) and each.hops == 0 for each in others)
    assert [type(each) for each in told(effects, 1)] == [pb.Peers, pb.Interest, pb.NotifyIntent]


def test_an_update_of_the_handshake_brings_adverts() -> None:
    one = One()
    one.peer(1)
    update = pb.Handshake(me="tcp://10.0.1.1:1/", stage=pb.UPDATE, intents=[intent()])
    assert one.hears(1, update) == [Watch(CHANNEL), Watch(TWIN)]


@pytest.mark.parametrize("message", [intent(), pb.Peers(), pb.Addrbook(), b"x"])
def test_a_stranger_is_not_listened_to(message: Known | bytes) -> None:
    one = One()
    one.open(1)
    assert closes(one.hears(1, message, route=ROUTE)) == ["before the handshake"]
    assert one.reads(1, encode(intent(), 1)) == []


def test_interests_without_room_are_tried_again() -> None:
    one = One()
    one.peer(1, interests=[interest(), interest("T@c")])
    for channel in (CHANNEL, "dndm/c/T"):
        one.core.crowded("subscribe", channel, one.at)
    assert one.core.waiting == {"watch": 0, "subscribe": 2}
    one.core.take()
    one.core.roomy()
    assert Subscribe(CHANNEL) in one.core.take()
    assert not any(one.core.waiting.values())


def test_intents_without_a_watch_are_wanted_until_there_is_room() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    one.core.crowded("watch", TWIN, one.at)
    effects = one.drain()
    assert [each for each in effects if isinstance(each, Unwatch)] == [Unwatch(CHANNEL), Unwatch(TWIN)]
    assert [each.register for each in told(effects, 1) if isinstance(each, pb.Interest)] == [True]
    assert one.core.waiting == {"watch": 1, "subscribe": 0}
    one.core.roomy()
    assert one.core.take() == [Watch(CHANNEL), Watch(TWIN)]
    for channel in CHANNEL, TWIN:
        one.core.listened(channel, False, one.at)
    assert [each.register for each in told(one.drain(), 1) if isinstance(each, pb.Interest)] == [False]


def test_forged_datagrams_keep_nobody_out_and_reach_nobody() -> None:
    """A handshake in a datagram makes a peer; whether it is there, its PONG says."""
    one = One(links=3)
    one.peer(1)
    for number in (2, 3, 4, 5):
        one.open(number, scheme="udp")
        hello = pb.Handshake(me=f"udp://10.0.2.{number}:1/", you=ME, stage=pb.INITIAL)
        effects = one.hears(number, hello)
        assert told(effects, 1) == []
    assert [link.number for link in one.core.links] == [1, 4, 5]
    ping = next(each for each in told(one.drain(), 5) if isinstance(each, pb.Ping))
    effects = one.hears(5, pb.Pong(payload=ping.payload))
    assert told(effects, 1) == [pb.Peers(ids=["udp://10.0.2.5:1/"])]
    assert one.hears(5, pb.Pong(payload=ping.payload)) == []
    one.peer(6)
    assert [link.number for link in one.core.links] == [1, 5, 6]


def test_a_stranger_has_so_much_time() -> None:
    one = One()
    one.open(1)
    assert one.core.due == HANDSHAKE_SECONDS
    one.now = HANDSHAKE_SECONDS
    one.core.tick(one.at)
    assert closes(one.core.take()) == ["no handshake"]


def test_links_have_a_bound() -> None:
    one = One(links=2)
    for number in (1, 2):
        one.peer(number)
    one.open(3)
    assert one.core.take() == [Close(3, "full")]


def test_who_comes_and_says_nothing_keeps_nobody_out() -> None:
    one = One(links=2)
    one.peer(1)
    for number in (2, 3, 4):
        one.now += 1.0
        one.open(number)
    assert one.core.take() == [Close(2, "full"), Close(3, "full")]
    assert [link.number for link in one.core.links] == [1, 4]


def test_who_shakes_hands_all_the_time_is_let_go() -> None:
    one = One()
    one.peer(1)
    hello = pb.Handshake(me="tcp://10.0.1.1:1/", stage=pb.UPDATE)
    assert [closes(one.hears(1, hello)) for _ in range(HANDSHAKES_LIMIT - 1)][-1] == ["handshakes"]


def test_a_board_that_starts_again_is_told_all_again() -> None:
    one = One()
    one.peer(2, interests=[interest("U@x")])
    one.peer(1, intents=[intent()], interests=[interest()])
    effects = one.hears(1, pb.Handshake(me="tcp://10.0.1.1:1/", you=ME, stage=pb.INITIAL))
    (final, *_) = told(effects, 1)
    assert isinstance(final, pb.Handshake)
    assert [each.route for each in final.interests] == ["U@x"]
    taken_back = [each for each in told(effects, 2) if isinstance(each, pb.Intent | pb.Interest)]
    assert taken_back == [pb.Intent(route=ROUTE), pb.Interest(route=ROUTE)]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (intent(), ""),
        (intent("nonsense"), "route"),
        (b"x", ""),
        (pb.Peers(ids=["nonsense"]), "peer"),
        (pb.Peers(ids=["tcp://10.9.9.9:1/"]), ""),
        (pb.Addrbook(entries=[pb.AddrbookEntry(peer="?")]), "peer"),
        (pb.Ping(payload=b"x"), ""),
    ],
)
def test_a_result_answers_what_wants_one(message: Known | bytes, error: str) -> None:
    one = One()
    one.peer(1)
    effects = one.hears(1, message, route=ROUTE, want_result=True)
    assert told(effects, 1)[-1] == pb.Result(nonce=7, error=int(bool(error)), description=error)
    assert pb.Result() not in told(one.hears(1, message, route=ROUTE), 1)


def test_what_cannot_be_read_has_a_result_too() -> None:
    one = One()
    one.peer(1)
    effects = one.hears(1, b"\xff", type=pb.INTENT, want_result=True)
    assert told(effects, 1) == [pb.Result(nonce=7, error=1, description="content")]
    one.open(2)
    assert told(one.hears(2, b"\xff", type=pb.INTENT, want_result=True), 2) == []


def test_a_result_wants_no_result() -> None:
    one = One()
    one.peer(1)
    assert one.hears(1, pb.Result(nonce=1), want_result=True) == []


def test_an_intent_is_notified_once_of_an_interest() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    one.core.listened(CHANNEL, True, one.at)
    wanted = told(one.core.take(), 1)
    assert [type(each) for each in wanted] == [pb.Interest, pb.NotifyIntent]
    assert one.hears(1, intent()) == []
    one.core.listened(CHANNEL, True, one.at)
    one.core.listened(CHANNEL, False, one.at)
    assert told(one.core.take(), 1) == [pb.Interest(route=ROUTE)]


def test_a_message_is_published_until_nobody_listens() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    assert one.hears(1, b"x", route=ROUTE) == [Publish(CHANNEL, b"x"), Publish(TWIN, b"x")]
    one.core.listened(CHANNEL, False, one.at)
    assert one.hears(1, b"x", route=ROUTE) == [Publish(TWIN, b"x")]
    one.core.listened(TWIN, False, one.at)
    assert one.hears(1, b"x", route=ROUTE) == []


def test_what_the_bus_cannot_carry_goes_to_peers() -> None:
    one = One(room=len(CHANNEL) + 10, local=20)
    one.peer(1, intents=[intent()])
    one.peer(2, interests=[interest()])
    for size, channels in (10, [CHANNEL, TWIN]), (11, [TWIN]), (20, [TWIN]), (21, []):
        effects = one.hears(1, b"x" * size, route=ROUTE)
        assert [each.channel for each in effects if isinstance(each, Publish)] == channels
        assert [each.link for each in effects if isinstance(each, Send)] == [2]
    counts = one.core.links[0].counts
    assert (counts["too large for the segment"], counts["too large for the host"]) == (3, 1)


def test_a_message_of_a_trusted_peer_is_an_intent() -> None:
    one = One()
    one.peer(1)
    assert one.hears(1, b"x", route=ROUTE) == [
        *(Watch(CHANNEL), Watch(TWIN)), *(Publish(CHANNEL, b"x"), Publish(TWIN, b"x")),
    ]  # fmt: skip


def test_types_of_users_are_messages_and_others_are_none() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    one.peer(2, interests=[interest()])
    *_, sent = one.hears(1, b"x", route=ROUTE, type=pb.USER_TYPES)
    assert isinstance(sent, Send)
    assert decode(frame_of(sent.data))[0].type == pb.USER_TYPES
    assert one.hears(1, b"x", route=ROUTE, type=pb.UNSPECIFIED_TYPE) == []
    assert one.core.links[0].counts["type"] == 1


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        (intent("T@leg"), "path"),
        (intent("arm#short"), "route"),
        (intent("T@arm.left"), ""),
        (interest("T@leg"), ""),
        (b"x", "no intent"),
    ],
)
def test_strictly_a_peer_keeps_to_its_path(message: Known | bytes, wrong: str) -> None:
    one = One(strict=True)
    one.peer(1, "arm")
    one.hears(1, message, route="T@arm.right")
    assert +one.core.links[0].counts == ({wrong: 1, "faults": 1} if wrong else {})


def test_strictly_nobody_is_dialled_for_others() -> None:
    one = One(strict=True)
    one.peer(1)
    one.hears(1, pb.Peers(ids=["tcp://10.9.9.9:1/"]))
    one.hears(1, pb.Addrbook(entries=[pb.AddrbookEntry(peer="tcp://10.9.9.9:1/")]))
    one.core.tick(one.at)
    assert all(isinstance(each, Send) for each in one.core.take())


def test_strictly_a_stranger_cannot_send_a_peer_away() -> None:
    for strict in (False, True):
        one = One(strict=strict)
        one.peer(1, intents=[intent()])
        one.open(2)
        hello = pb.Handshake(me="tcp://10.0.1.1:1/", you=ME, stage=pb.INITIAL)
        effects = one.hears(2, hello)
        assert Close(2 if strict else 1, "twice") in effects
        assert [link.number for link in one.core.links] == [1 if strict else 2]


def test_routes_of_a_peer_are_bounded_for_it_alone() -> None:
    one = One(routes=3)
    one.peer(1, intents=[intent(f"T@{number}") for number in range(5)])
    one.peer(2)
    assert one.hears(2, intent("T@4")) != []
    assert one.core.links[0].counts["limit"] == 1
    assert one.hears(1, b"x", route="T@9") == []


def test_adverts_beyond_the_rate_are_dropped() -> None:
    one = One(routes=1000)
    one.peer(1)
    floods = [pb.Intents(intents=[intent(f"T@a{n}.{m}") for m in range(500)]) for n in range(4)]

    def watched(number: int) -> int:
        effects = one.hears(1, floods[number]) + one.drain()
        return sum(isinstance(each, Watch) for each in effects)

    assert [watched(0), watched(1), watched(2)] == [1000, 24, 0]
    one.now = 1.0
    assert watched(3) == 200


def test_a_line_stays_open_while_nobody_answers() -> None:
    one = One()
    one.open(1, scheme="serial", dialled="serial:///dev/ttyS0/arm")
    for _ in range(3):
        assert [type(each) for each in told(one.core.take(), 1)] == [pb.Handshake]
        one.now += HANDSHAKE_SECONDS
        one.core.tick(one.at)
    hello = pb.Handshake(me="serial:///dev/ttyS0/arm", stage=pb.FINAL, intents=[intent()])
    assert Watch(CHANNEL) in one.hears(1, hello)
    one.now += SILENT_SECONDS
    effects = one.drain()
    assert closes(effects) == []
    assert Unwatch(CHANNEL) in effects
    assert Silent(1, "silent") in effects
    assert [each.stage for each in told(effects, 1) if isinstance(each, pb.Handshake)] == [pb.INITIAL]


def test_a_line_at_which_peers_are_waited_for_may_be_silent() -> None:
    one = One()
    one.open(1, scheme="serial")
    one.now += HANDSHAKE_SECONDS
    assert one.drain() == []


def test_a_farewell_takes_back_what_was_told_where_nothing_ends() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    for number, scheme in (2, "udp"), (3, "serial"):
        one.open(number, scheme=scheme, dialled=f"{scheme}:///dev/ttyS{number}/b")
        me = f"{scheme}:///dev/ttyS{number}/b"
        one.hears(
            number,
            pb.Handshake(me=me, you=ME, stage=pb.FINAL, intents=[intent()], interests=[interest("T@c")]),
        )
    one.core.listened(CHANNEL, True, one.at)
    one.drain()
    one.core.farewell(one.at)
    effects = one.drain()
    assert told(effects, 1) == []
    for number in 2, 3:
        intents, interests = told(effects, number)
        assert intents == pb.Intents(intents=[pb.Intent(route="T@a.b"), pb.Intent(route="T@c")])
        assert interests == pb.Interests(interests=[pb.Interest(route="T@a.b")])
    one.core.listened(CHANNEL, False, one.at)
    assert [told(one.drain(), number) for number in (2, 3)] == [[], []]


@pytest.mark.parametrize("scheme", ["udp", "serial"])
def test_who_was_told_the_end_is_greeted_and_let_go_no_more(scheme: str) -> None:
    one = One()
    me = f"{scheme}:///dev/ttyS2/b"
    one.open(2, scheme=scheme, dialled=me)
    one.hears(2, pb.Handshake(me=me, you=ME, stage=pb.FINAL, interests=[interest()]))
    one.now += HANDSHAKE_SECONDS + 1
    one.hears(2, pb.Ping(payload=bytes(16)))
    one.core.farewell(one.at)
    one.core.take()
    one.core.came(CHANNEL, b"x", one.at)
    assert one.hears(2, intent("T@late")) == []
    one.now += 1
    assert one.drain() == []
    assert one.core.due > one.now


def test_a_reload_changes_whom_it_dials() -> None:
    one = One(peers=("tcp://10.0.2.1:1/", "tcp://10.0.2.2:1/"))
    one.core.tick(one.at)
    assert [str(each.peer) for each in one.core.take() if isinstance(each, Dial)] == [
        "tcp://10.0.2.1:1/", "tcp://10.0.2.2:1/",
    ]  # fmt: skip
    one.core.reconfigure(Options(ME, peers=("tcp://10.0.2.2:1/", "tcp://10.0.2.3:1/")))
    for each in ("tcp://10.0.2.1:1/", "tcp://10.0.2.2:1/"):
        one.core.dial_failed(parse_peer(each), one.at)
    one.now = 5.0
    one.core.tick(one.at)
    assert sorted(str(each.peer) for each in one.core.take() if isinstance(each, Dial)) == [
        "tcp://10.0.2.2:1/", "tcp://10.0.2.3:1/",
    ]  # fmt: skip


def test_a_peer_with_many_faults_is_let_go() -> None:
    one = One()
    one.peer(1)
    effects = [closes(one.hears(1, intent("nonsense"))) for _ in range(FAULTS_LIMIT + 1)]
    assert effects[-2:] == [[], ["faults"]]


def test_a_broken_frame_ends_a_link_but_no_serial_line() -> None:
    one = One()
    one.peer(1)
    assert closes(one.reads(1, b"?")) == ["frame"]
    one.open(2, scheme="serial")
    hello = encode(pb.Handshake(me="serial:///dev/ttyS0/arm", stage=pb.INITIAL), 1)
    assert one.reads(2, b"boot \xfa" + hello[:-3]) == []
    assert told(one.reads(2, hello[-3:]), 2) != []


def test_a_silent_line_gives_up_what_has_begun() -> None:
    one = One()
    one.open(1, scheme="serial")
    hello = encode(pb.Handshake(me="serial:///dev/ttyS0/arm", stage=pb.INITIAL), 1)
    begun = Frame(b"", bytes(2000)).serialize()[:50]
    assert one.reads(1, begun + hello) == []
    one.now = one.core.due
    assert one.now < HANDSHAKE_SECONDS
    one.core.tick(one.at)
    assert [type(each) for each in told(one.core.take(), 1)][:1] == [pb.Handshake]


def test_a_slow_peer_loses_messages_and_is_let_go() -> None:
    one = One(backlog=1000)
    one.peer(1, intents=[intent()])
    one.peer(2, interests=[interest()])
    one.peer(3, interests=[interest()])
    for number in (2, 3):
        one.core.backlog(number, 0, one.at)
    got = {2: 0, 3: 0}
    for number in range(30):
        for effect in one.hears(1, b"x" * 100, route=ROUTE, timestamp=number + 1):
            if isinstance(effect, Send):
                got[effect.link] += 1
        one.core.backlog(3, 0, one.at)
    assert got[3] == 30
    assert 0 < got[2] < 10
    one.core.backlog(2, 2000 + FRAME_LIMIT, one.at)
    assert closes(one.core.take()) == []
    one.core.backlog(2, 2001 + FRAME_LIMIT, one.at)
    assert closes(one.core.take()) == ["slow"]


def test_a_message_of_the_bus_that_is_no_route_is_counted() -> None:
    one = One()
    one.core.came("other/channel", b"x", one.at)
    assert one.core.counts == {"bus: channel": 1}
    assert one.core.take() == []


def test_a_link_that_is_gone_says_nothing_more() -> None:
    one = One()
    one.peer(1, intents=[intent()])
    one.core.closed(1, one.at)
    one.core.take()
    assert one.reads(1, encode(intent(), 1)) == []
    one.core.closed(1, one.at)
    one.core.backlog(1, 10**9, one.at)
    assert one.core.take() == []
