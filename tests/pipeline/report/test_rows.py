"""``bccnd/pipeline/report/rows.py``."""

import pytest

from bccnd.pipeline.report.rows import HostLoss, Pair, Totals


@pytest.mark.parametrize(("sent", "lost", "share"), [(0, 0, 0.0), (8, 0, 0.0), (8, 2, 0.25), (8, 8, 1.0)])
def test_loss_is_a_share_of_what_was_sent(sent: int, lost: int, share: float) -> None:
    assert Totals(sent=sent, lost=lost).loss == share
    assert Pair("a", "b", sent, lost).loss == share
    assert HostLoss("a", "receiver", 2, 1, sent, lost).loss == share
