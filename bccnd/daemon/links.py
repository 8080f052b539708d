"""Keeps the bindings to the segment in step with the links of this host.

Rules
- A change of links is acted on SETTLE_SECONDS later, so that a hundred containers that start cost one look. Each look
  that finds other bindings doubles that time, up to CALM_SECONDS, until the links have been quiet for CALM_SECONDS. A
  link that flaps therefore fills no log and keeps nobody busy.
- Each tick tries again to open a binding that could not be opened, and to read links that could not be read.
- Which addresses are this host's is known at once: what comes from another one under a name of this host is no echo.
- An interface that the settings name and the host lacks is reported once, and again after it has been there.
"""

from asyncio import AbstractEventLoop, TimerHandle

import structlog

from bccnd.daemon.segments import Segments
from bccnd.net.bindings import Binding, Choice, missing, wanted, without_links
from bccnd.net.links import LinkWatch
from bccnd.net.netlink import NetlinkError
from bccnd.process.settings import Settings

SETTLE_SECONDS = 0.1
CALM_SECONDS = 10.0

log = structlog.get_logger()


def choice_of(settings: Settings) -> Choice:
    return Choice(settings.broadcast, settings.port, settings.interfaces, settings.interfaces_excluded)


def bindings_of(choice: Choice, watch: LinkWatch | None) -> list[Binding]:
    """The bindings for the links of this moment."""
    return wanted(choice, watch.links.values(), watch.addresses) if watch else without_links(choice)


class Links:
    """``watch`` is None on a host whose kernel does not report its links; its bindings never change."""

    def __init__(
        self, loop: AbstractEventLoop, watch: LinkWatch | None, segments: Segments, choice: Choice
    ) -> None:
        self._loop = loop
        self._watch = watch
        self._segments = segments
        self._choice = choice
        self._look: TimerHandle | None = None
        self._settle = SETTLE_SECONDS
        self._changed_at = float("-inf")
        self._reported: set[str] = set()
        self._alone = False
        self._broken = False
        self._watching = False
        self._addresses: frozenset[bytes] = frozenset()
        if watch:
            self._note_addresses(watch)

    def watch(self) -> None:
        self._watching = True
        if self._watch:
            self._loop.add_reader(self._watch.fileno(), self._readable, self._watch)
        else:
            log.warning("the kernel does not report links: interfaces that come or go are not followed")
        self._follow()

    def unwatch(self) -> None:
        self._watching = False
        if self._watch:
            self._loop.remove_reader(self._watch.fileno())
        if self._look:
            self._look.cancel()
            self._look = None

    def choose(self, choice: Choice) -> None:
        """Follow other settings from now on."""
        if choice != self._choice:
            self._choice = choice
            self._reported.clear()
            if self._watching:
                self._follow()

    def tick(self) -> None:
        """Call this about once a second."""
        if self._broken and self._watch:
            self._refresh(self._watch)
        elif self._segments.failing and not self._look:
            self._follow()

    def close(self) -> None:
        self.unwatch()
        if self._watch:
            self._watch.close()

    def _readable(self, watch: LinkWatch) -> None:
        try:
            changed = watch.read()
        except (OSError, NetlinkError) as error:
            log.error("links not readable, trying again", reason=str(error))
            self._loop.remove_reader(watch.fileno())
            self._broken = True
            return
        self._note_addresses(watch)
        if changed and self._look is None:
            self._look = self._loop.call_later(self._settle, self._follow)

    def _refresh(self, watch: LinkWatch) -> None:
        try:
            watch.refresh()
        except (OSError, NetlinkError):
            return
        self._note_addresses(watch)
        self._broken = False
        self._loop.add_reader(watch.fileno(), self._readable, watch)
        self._follow()

    def _note_addresses(self, watch: LinkWatch) -> None:
        """What was sent from an address that has just gone may still come back: it counts until the next change."""
        addresses = frozenset([str(each.address).encode() for each in watch.addresses])
        if addresses != self._addresses:
            self._segments.set_addresses(addresses | self._addresses)
            self._addresses = addresses

    def _follow(self) -> None:
        if self._look:
            self._look.cancel()
            self._look = None
        now, before = self._loop.time(), [segment.binding for segment in self._segments.open]
        self._segments.follow(bindings_of(self._choice, self._watch))
        calm = now - self._changed_at >= CALM_SECONDS
        if before != [segment.binding for segment in self._segments.open]:
            self._settle = SETTLE_SECONDS if calm else min(self._settle * 2, CALM_SECONDS)
            self._changed_at = now
        if self._watch:
            self._report(set(missing(self._choice, self._watch.links.values())))

    def _report(self, lacking: set[str]) -> None:
        for name in sorted(lacking - self._reported):
            log.warning("interface missing, waiting for it", interface=name)
        self._reported = lacking
        alone = not self._segments.open
        if alone and not self._alone:
            log.warning("no interface to the segment, serving this host alone", address=self._choice.address)
        self._alone = alone
