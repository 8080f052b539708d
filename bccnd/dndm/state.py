"""The state that the parts of the gateway share: its links, and the effects to carry out."""

from collections import Counter

from bccnd.dndm.effects import Effect, Send
from bccnd.dndm.link import Link
from bccnd.dndm.options import Options
from bccnd.relay.moment import Moment
from bccnd.wire.dndm.messages import Known, encode


class State:
    """``counts``: those of closed links, and of the bus."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.links: dict[int, Link] = {}
        self.effects: list[Effect] = []
        self.counts: Counter[str] = Counter()

    def tell(self, link: Link, message: Known, at: Moment) -> None:
        self.send(link, encode(message, at.unix_ns))

    def send(self, link: Link, data: bytes) -> None:
        link.backlog += len(data)
        self.effects.append(Send(link.number, data))
