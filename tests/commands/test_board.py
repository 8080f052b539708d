"""What ``bccn top`` draws, from literal figures."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.commands.board import ALERT, TITLE, draw
from bccnd.commands.rates import Figures
from bccnd.commands.view import Sort, View

STATUS = {
    "version": "0.1.0", "host": "relay01", "pid": 10111, "uptime": 7384.2, "clients": 2, "slow": 1, "sources": 9,
    "counters": {"dropped": 77, "unsent": 0}, "rejected": {"own": 9, "fields": 3},
    "queued": {"packets": 900, "bytes": 12345}, "kernel": {"dropped": 12, "filtered": 0}, "repair": {"repaired": 5},
}  # fmt: skip
RATES = {
    "published": 12.0, "received": 2100.0, "accepted": 2000.0, "sent": 12.0, "unsent": 0.0, "delivered": 4012.5,
    "dropped": 1.5, "rejected": 0.0, "kernel": 0.0,
}  # fmt: skip


def client(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "pid": 4711, "uid": 0, "user": "root", "subscriptions": 2, "queued": 5, "in": 0.5, "out": 1e4,
        "dropped": 3, "holds": 0, "policy": "drop-oldest", "seconds": 61, "slow": None, **more,
    }  # fmt: skip


def source(src: str, **more: Any) -> dict[str, Any]:
    return {
        "src": src, "peer": "10.0.0.2:5400", "rate": 1.0, "lost": 0, "loss": 0.0, "duplicates": 0, "late": 0,
        "restarts": 0, "silent": 0.2, **more,
    }  # fmt: skip


FIGURES = Figures(
    2.0,
    STATUS,  # type: ignore[arg-type]
    dict(RATES),
    [client("relay01/a/1", out=None), client("relay01/b/2", slow=3.0, dropped=74, queued=895)],
    [source("mon01/c/3", lost=4, loss=2.34, repaired=3)],
    frozenset(),
)


def texts(view: View = View(), figures: Figures | None = FIGURES, **more: Any) -> list[str]:  # noqa: B008
    return [line.text for line in draw(view, figures, more.pop("trouble", ""), **{"width": 80} | more)]


def test_full_output_without_a_height() -> None:
    assert texts(clock="04:20:01") == [
        "bccnd 0.1.0 on relay01, pid 10111, up 2 h 3 min                         04:20:01",
        "messages   12/s published, 4012/s delivered, 1.5/s dropped",
        "datagrams  2100/s in, 12/s out, 0/s rejected, 0/s kernel drops",
        "in all     77 dropped, 3 rejected, 12 kernel drops, 0 unsent, 5 repaired",
        "now        2 clients, 1 too slow, 1 source, 900 packets queued",
        "",
        "2 clients by OUT/S, highest first",
        "CLIENT       PID USER SUBS PENDING IN/S OUT/S DROPS HOLDS POLICY   UP           ",
        "relay01/b/2 4711 root    2     895  0.5   10k    74     0 oldest 1m1s",
        "relay01/a/1 4711 root    2       5  0.5     -     3     0 oldest 1m1s",
        "",
        "1 source by RECV/S, highest first",
        "SOURCE    FROM          RECV/S LOST LOSS REPAIRED DUPL. LATE RESTARTS SILENT    ",
        "mon01/c/3 10.0.0.2:5400    1.0    4 2.3%        3     0    0        0     0s",
    ]


def test_titles_and_slow_clients_stand_out() -> None:
    styles = {line.text.split()[0]: line.style for line in draw(View(), FIGURES, "", width=80) if line.text}
    assert styles["CLIENT"] == styles["SOURCE"] == TITLE
    assert styles["relay01/b/2"] == ALERT
    assert styles["relay01/a/1"] == "plain"


def test_only_one_table_is_shown() -> None:
    lines = texts(View(tables=("sources",)))
    assert not [line for line in lines if "CLIENT" in line]
    assert [line for line in lines if line.startswith("mon01/c/3")]


def test_rows_are_sorted() -> None:
    view = View(tables=("clients",), clients=Sort("name", False))
    assert [line.split()[0] for line in texts(view)[-2:]] == ["relay01/a/1", "relay01/b/2"]
    assert "2 clients by CLIENT, A to Z" in texts(view)
    assert [line.split()[0] for line in texts(view.reversed("clients"))[-2:]] == [
        "relay01/b/2",
        "relay01/a/1",
    ]


def test_filter_keeps_matching_rows() -> None:
    lines = texts(View(filter="B/2"))
    assert "1 of 2 clients with 'B/2' by OUT/S, highest first" in lines
    assert "0 of 1 source with 'B/2'" in lines
    assert not [line for line in lines if line.startswith(("relay01/a", "mon01"))]


def test_rows_that_were_not_read_are_announced() -> None:
    assert [
        line for line in texts(figures=replace(FIGURES, cut=frozenset({"sources"}))) if " 9 sources, " in line
    ]
    assert "2 clients by OUT/S, highest first; and more (--rows N)" in texts(
        figures=replace(FIGURES, cut=frozenset({"clients"}))
    )


def test_a_screen_is_filled_and_ends_with_the_keys() -> None:
    lines = texts(height=24)
    assert len(lines) == 24
    assert lines[-1].startswith("every 2 s   q quit")


def test_many_rows_share_the_screen() -> None:
    figures = replace(
        FIGURES,
        clients=[client(f"relay01/a/{at}") for at in range(50)],
        sources=[source(f"mon/x/{at}") for at in range(4)],
    )
    lines = texts(figures=figures, height=24)
    assert len([line for line in lines if line.startswith("mon/x/")]) == 4  # they are few, so all are shown
    shown = len([line for line in lines if line.startswith("relay01/a/")])
    assert shown == 24 - 5 - 1 - (3 + 4) - 3
    assert f"50 clients by OUT/S, highest first, {shown} shown" in lines


def test_trouble_is_shown_beside_the_last_figures() -> None:
    [line] = [line for line in draw(View(), FIGURES, "no daemon at /x", width=80) if line.style == ALERT][:1]
    assert line.text == "no daemon at /x"
    assert texts(figures=None, trouble="no daemon at /x")[0] == "no daemon at /x"


def test_help_names_every_key() -> None:
    lines = texts(View(help=True), height=30)
    assert lines[0].startswith("q, Ctrl-C")
    assert len(lines) == 30


@pytest.mark.parametrize("view", [View(), View(help=True), View(typing=True, filter="x" * 40)])
@given(width=st.integers(1, 130), height=st.integers(1, 40))
def test_nothing_is_larger_than_the_screen(view: View, width: int, height: int) -> None:
    lines = texts(view, width=width, height=height, clock="04:20:01", trouble="no daemon")
    assert len(lines) == height
    assert max(map(len, lines)) <= width
