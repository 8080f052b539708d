"""Verdicts: the words that records and counters use, what they mean, and how much they matter."""

from bccnd.wire.verdict import ATTACKS, DROPPED, HARMLESS, Verdict, verdict_of


def test_every_verdict_is_known_by_its_word() -> None:
    assert [verdict_of(str(verdict)) for verdict in Verdict] == list(Verdict)
    assert verdict_of("of a later version") is None


def test_meanings_differ_and_complete_a_phrase() -> None:
    meanings = [verdict.meaning for verdict in Verdict]
    assert len(set(meanings)) == len(meanings)
    assert all(meaning[0].islower() and not meaning.endswith(".") for meaning in meanings)


def test_no_attack_is_harmless_and_none_is_delivered() -> None:
    assert {"hmac", "unauthenticated", "conflict"} == ATTACKS
    assert {"own", "duplicate", "late"} == HARMLESS - {v for v in Verdict if v.delivered}
    assert not ATTACKS & HARMLESS
    assert set(DROPPED) | {"ok", "new", "restarted", "repaired", "retained"} == set(Verdict)
