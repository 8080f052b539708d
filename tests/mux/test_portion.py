"""A message of the record and the same one of the live bus."""

from bccnd.mux.portion import ITEM_BYTES, Portion, key_of, recv, time_of, unrecorded


def test_a_message_of_both_has_one_key() -> None:
    key, packet = recv(1234, "[::1]:5400", "here/a", 7, "a/x", b"1|2]\0")
    assert packet == b"RECV [::1]:5400 1234 ok\0BCCN1[18]here/a:7:a/x|1|2]\0"
    live = b"RECV [::1]:5400 1234 ok\0BCCN1[18:crc32=00000000]here/a:7:a/x|1|2]\0"
    assert key_of(packet) == key_of(live) == key
    assert time_of(live) == 1234
    others = [recv(1235, None, "here/a", 7, "a/x", b""), recv(1234, None, "here/b", 7, "a/x", b"")]
    others += [recv(1234, None, "here/a", 8, "a/x", b""), recv(1234, None, "here/a", 7, "a/y", b"")]
    assert len({key, *(each for each, _ in others)}) == 5


def test_what_this_host_sent_is_local() -> None:
    assert recv(1, None, "here/a", 7, "a", b"")[1] == b"RECV local 1 ok\0BCCN1[11]here/a:7:a|"


def test_a_notice_has_no_key_and_all_of_it_weighs() -> None:
    notice = unrecorded(1, 2, "why")
    assert notice == (b"", b"CMSG unrecorded\x001 2 why")
    assert Portion([notice, notice]).weight == 2 * (ITEM_BYTES + len(notice[1]))
