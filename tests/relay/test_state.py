"""What a relay knows: rules that change in place, and counters that begin at zero."""

from dataclasses import asdict

import pytest

from bccnd.relay.options import Limits, Options
from bccnd.relay.rights import AccessList
from bccnd.relay.state import Counters, Rules, packet_limit
from bccnd.wire.bccn1 import CHAN_LIMIT, Integrity, Level
from tests.relay.fakes import Bus

KEYED = Integrity([b"k" * 32], Level.HMAC)


def rules(options: Options | None = None) -> Rules:
    return Rules(options or Options(), Integrity(), AccessList([]))


@pytest.mark.parametrize("payload", [1, 64 << 10])
def test_packet_limit_covers_longest_channel_and_payload(payload: int):
    options = Options(limits=Limits(local_payload=payload))
    assert packet_limit(options) == len(b"MSG " + b"c" * CHAN_LIMIT + b"\0") + payload


def test_rules_change_for_everybody_who_holds_them():
    held = rules()
    changed, access = Options(local=()), AccessList([])
    held.replace(changed, KEYED, access)
    assert (held.options, held.integrity, held.access) == (changed, KEYED, access)


def test_another_key_is_another_codec():
    held = rules()
    before = held.codec
    memory = bytearray(b"MSG a\0x" + bytes(1400))
    held.replace(held.options, KEYED, held.access)
    assert held.codec is not before
    (sealed,) = held.codec.datagrams(b"here/prog/1", 1, memory, [0], [7])
    assert KEYED.open(sealed)[:3] == (b"here/prog/1", 1, b"a")


def test_the_packet_limit_stays_as_memory_is_laid_out_for_it():
    held = rules()
    limit = held.packet_limit
    held.replace(Options(limits=Limits(local_payload=1)), Integrity(), held.access)
    assert held.packet_limit == limit


def test_a_new_relay_knows_itself_alone():
    state = Bus().relay.state
    assert not any(asdict(Counters()).values())
    assert state.counters == Counters()
    assert not (state.sessions)
    assert not (state.ports)
    assert not (state.taps)
    assert not (state.rejected)
    assert not (state.refusals.counts)
    assert state.names.holders.get(state.own.name) is state.own
    assert state.names.holders.get(state.repair_source.name) is state.repair_source
    assert len(state.names) == 2
