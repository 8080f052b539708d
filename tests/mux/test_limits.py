"""How the bounds fit each other."""

from bccnd.mux import limits
from bpmux.limits import TOP_LEVEL_RESERVE


def test_what_the_documents_promise_is_kept() -> None:
    assert limits.WINDOW >= 64 * 1024
    assert limits.ENDPOINT.reserve >= TOP_LEVEL_RESERVE
    assert limits.ENDPOINT.payload == 128 * 1024


def test_a_peer_is_no_longer_read_well_before_it_is_dropped() -> None:
    # One turn answers each chunk with a head at most.
    assert limits.ENDPOINT.replies >= limits.REPLIES + 13 * limits.CHUNKS


def test_a_session_holds_its_window_in_short_packets() -> None:
    shortest = len(b"MSG a/b\0xy")
    assert limits.WINDOW // shortest * (shortest + limits.PACKET_BYTES) <= limits.SESSION_WAITING


def test_a_user_has_room_for_full_windows_of_many_sessions() -> None:
    typical = len(b"MSG sensors/kitchen/temperature\0" + bytes(70))
    full = limits.WINDOW // typical * (typical + limits.PACKET_BYTES)
    assert 64 * 3 * full <= limits.USER_BYTES
