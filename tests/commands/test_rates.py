"""Rates from two samples of the counters."""

from typing import Any

import pytest

from bccnd.commands.rates import Sample, compare

COUNTERS = {
    "published": 100, "received": 1000, "accepted": 900, "sent": 50, "unsent": 0, "delivered": 300, "dropped": 7
}  # fmt: skip


def status(pid: int = 1, rejected: int = 0, kernel: int = 0, **counters: int) -> dict[str, Any]:
    return {
        "pid": pid,
        "counters": COUNTERS | counters,
        "rejected": {"own": 10 * rejected, "hmac": rejected},
        "kernel": {"dropped": kernel},
    }


def client(
    name: str = "here/a/1", published: int = 0, delivered: int = 0, seconds: float = 60
) -> dict[str, Any]:
    return {"name": name, "pid": 1, "published": published, "delivered": delivered, "seconds": seconds}


def source(src: str = "there/a/1", received: int = 0, lost: int = 0) -> dict[str, Any]:
    return {"src": src, "received": received, "lost": lost, "peer": "10.0.0.1:5400"}


def test_the_first_sample_has_no_rates() -> None:
    figures = compare(None, Sample(5.0, status(), [client()], [source()]))
    assert figures.seconds == 0.0
    assert set(figures.rates.values()) == {None}
    assert (figures.clients[0]["in"], figures.clients[0]["out"], figures.sources[0]["rate"]) == (
        None,
        None,
        None,
    )


def test_rates_are_differences_over_time() -> None:
    figures = compare(
        Sample(5.0, status(), [client(published=10, delivered=20)], [source(received=100)]),
        Sample(
            7.0,
            status(published=110, delivered=310, rejected=4, kernel=6),
            [client(published=20, delivered=21)],
            [source(received=101, lost=101)],
        ),
    )
    assert figures.seconds == 2.0
    assert figures.rates == {
        "published": 5.0, "received": 0.0, "accepted": 0.0, "sent": 0.0, "unsent": 0.0, "delivered": 5.0,
        "dropped": 0.0, "rejected": 2.0, "kernel": 3.0,
    }  # fmt: skip
    assert (figures.clients[0]["in"], figures.clients[0]["out"]) == (5.0, 0.5)
    assert (figures.sources[0]["rate"], figures.sources[0]["loss"]) == (0.5, 50.0)


def test_sources_have_their_loss_before_and_after_repair() -> None:
    [row] = compare(None, Sample(5.0, status(), [], [source(received=3, lost=1) | {"repaired": 1}])).sources
    assert (row["missed"], row["loss"]) == (50.0, 25.0)


@pytest.mark.parametrize(("seconds", "rate"), [(0.5, 4.0), (60, None)], ids=["new", "in sight only now"])
def test_a_new_client_began_at_0(seconds: float, rate: float | None) -> None:
    figures = compare(Sample(5.0, status()), Sample(7.0, status(), [client(published=8, seconds=seconds)]))
    assert figures.clients[0]["in"] == rate


@pytest.mark.parametrize(("cut", "rate"), [(frozenset[str](), 4.0), (frozenset({"sources"}), None)])
def test_a_new_source_began_at_0_if_no_row_was_cut_off(cut: frozenset[str], rate: float | None) -> None:
    figures = compare(Sample(5.0, status(), cut=cut), Sample(7.0, status(), [], [source(received=8)]))
    assert figures.sources[0]["rate"] == rate


def test_another_daemon_begins_with_a_first_sample() -> None:
    figures = compare(Sample(5.0, status()), Sample(7.0, status(pid=2, published=110)))
    assert (figures.seconds, figures.rates["published"]) == (0.0, None)


def test_a_counter_that_went_back_began_at_0() -> None:
    old, new = client(published=500, delivered=9), client(published=6, delivered=9)
    figures = compare(Sample(5.0, status(), [old]), Sample(7.0, status(), [new]))
    assert (figures.clients[0]["in"], figures.clients[0]["out"]) == (3.0, 0.0)


def test_a_source_without_datagrams_has_no_loss() -> None:
    assert compare(None, Sample(5.0, status(), [], [source()])).sources[0]["loss"] == 0.0
