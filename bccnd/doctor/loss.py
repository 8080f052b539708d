"""What of a source was lost, as the daemon counts it."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Loss(NamedTuple):
    """Percent of what a source sent: what was lost ``before`` repair, and what stayed lost ``after`` it."""

    before: float
    after: float


def loss_of(source: Mapping[str, Any]) -> Loss:
    """Of the row of a source; an older daemon does not repair."""
    lost, sent = source["lost"], source["received"] + source["lost"]
    if not sent:
        return Loss(0.0, 0.0)
    return Loss(100 * (lost + source.get("repaired", 0)) / sent, 100 * lost / sent)
