"""The loss of a source, as the daemon counts it."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Loss(NamedTuple):
    """The loss of a source, in percent of what it sent: ``before`` repair, and ``after`` it."""

    before: float
    after: float


def loss_of(source: Mapping[str, Any]) -> Loss:
    """The loss in the row of a source. Rows of an older daemon have no repair."""
    lost, sent = source["lost"], source["received"] + source["lost"]
    if not sent:
        return Loss(0.0, 0.0)
    return Loss(100 * (lost + source.get("repaired", 0)) / sent, 100 * lost / sent)
