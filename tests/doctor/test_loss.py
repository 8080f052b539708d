"""What of a source was lost."""

from bccnd.doctor.loss import loss_of


def test_loss_is_told_before_and_after_repair() -> None:
    assert loss_of({"received": 990, "lost": 10, "repaired": 40}) == (5.0, 1.0)
    assert loss_of({"received": 990, "lost": 10}) == (1.0, 1.0)  # of an older daemon
    assert loss_of({"received": 0, "lost": 0}) == (0.0, 0.0)
