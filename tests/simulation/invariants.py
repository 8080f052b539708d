"""What must hold in every history: the truth about what was said, and who is held against it.

    Publisher   one program of one life: what it said, and when
    Watcher     one subscriber: what it got
    Ledger      all of them; ``check`` at the end, when everything is quiet

The rules, by the name that a ``Broken`` has:

    once      a client gets each message at most once
    order     the messages of a source come in order
    delay     a local delivery is not delayed, nor one of a source without a gap
    hold      nothing is held back for longer than HOLD_SECONDS
    account   at each host and for each source: delivered + lost + late is the span that was heard, all of it was sent
    forged    nothing that was sent without the key is delivered
    clients   what a subscriber gets is what the witness of its host gets, less what it was told that it lost; nobody
              is closed
    plain     a program that knows the public rule alone sees no message twice, and no restart for a resend
    memory    what is kept and what is held back is within its bounds, and is what the relay takes it for
    traffic   requests, announcements and what is sent again are within their budgets, in each second
    quiet     once all is said and mended, nothing is sent but heartbeats, and nothing is due
    spins     no relay is due again and again at one moment
    fault     no relay raises

Nothing here asks a relay what it did, but for its account and its deadlines, which are what is checked.
"""

from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING

from bccnd.relay.pattern import matches
from bccnd.relay.session import Session

if TYPE_CHECKING:
    from tests.simulation.host import Host
    from tests.simulation.strangers import PlainProgram
    from tests.simulation.world import World

# Without a key, a jump of more numbers is agreed with when the next has come. What comes late meanwhile is delivered
# (``bccnd/relay/dedup.py``).
NEAR = 16
# The payload of messages whose integrity check fails.
FORGED = b"forged"
# In a second: requests, of which 20 can go at once, and some in several parts; announcements, one in 50 ms, as many
# more of sources that have just begun, 8 of them at once, and one more after a replacement.
REQUESTS, ANNOUNCEMENTS = 180, 50
# A gap is given up 1 s after it was found, and what is held waits for gaps that were found before; a daemon that
# stands still is late with that.
HOLD_SECONDS = 1.5


class Broken(Exception):  # noqa: N818 - it is no error, but what the simulation is for
    """A rule that did not hold."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


@cache
def _wants(pattern: str, chan: str) -> bool:
    return matches(pattern.encode(), b"/", chan.encode())


class Publisher:
    """What one program said: ``times`` and ``chans`` of its messages; the numbers of these go on from ``first``."""

    def __init__(self, number: int, src: bytes, life: int, first: int, host: "Host | PlainProgram") -> None:
        self.number = number
        self.src = src
        # Begins its payloads. What else there is in a history must not change them, nor so the dice.
        self.label = b"%b~%d" % (src, life)
        self.first = first
        self.host = host
        self.times: list[float] = []
        self.chans: list[str] = []

    def say(self, messages: int, chan: str, now: float, size: int) -> list[bytes]:
        """The packets of further messages."""
        begin = len(self.times)
        self.times += [now] * messages
        self.chans += [chan] * messages
        padding = b"." * size
        return [
            b"MSG %b\0%b %d %b" % (chan.encode(), self.label, at, padding)
            for at in range(begin, begin + messages)
        ]

    def about(self, index: int) -> str:
        """One message in words, or with ``-n`` the last n."""
        name = self.src.decode()
        if index >= 0:
            return f"{name} #{index}"
        count = len(self.times)
        return f"{name} #{count - 1}" if index == -1 else f"{name} #{count + index} to #{count - 1}"


class Watcher:
    """A subscriber. ``stuck``: it reads nothing at the moment; ``behind``: something waits for it.

    ``got``: publisher, index and time of each message, ``others``: packets that are no messages of a ``Publisher``.
    """

    def __init__(self, host: "Host", session: Session, pattern: str, ledger: "Ledger") -> None:
        self.host = host
        self.life = host.lives
        self.session = session
        self.pattern = pattern
        self.stuck = self.behind = self.slow = False
        self.got: list[tuple[int, int, float]] = []
        self.others = self.dropped = 0
        self._ledger = ledger
        self._last: dict[int, int] = {}
        # As somebody sees it who knows nothing of repair: what comes next of each publisher, and what is missing.
        self._next: dict[int, int] = {}
        self._missing: dict[int, set[int]] = {}
        # When its host read a message first, if that was not the time when it was delivered.
        self._read: dict[tuple[int, int], float] = {}

    def wants(self, chan: str) -> bool:
        return _wants(self.pattern, chan)

    def take(self, packet: bytes, now: float) -> None:
        head, _, payload = packet.partition(b"\0")
        words = payload.split(b" ", 2)
        publisher = self._ledger.labels.get(words[0])
        if publisher is None:
            self._take_other(head, payload)
            return
        number, index = publisher.number, int(words[1])
        if index <= self._last.get(number, -1):
            self._complain(number, index)
        self._last[number] = max(index, self._last.get(number, -1))
        self.got.append((number, index, now))
        read = self._read.pop((number, index), now)
        if now - read > HOLD_SECONDS:
            about = self._ledger.publishers[number].about(index)
            raise Broken("hold", f"{self} gets {about} {now - read:.3f} s after its host read it")

    def _take_other(self, head: bytes, payload: bytes) -> None:
        """A notice, or a message of a daemon."""
        if payload == FORGED:
            raise Broken("forged", f"{self} gets a message that was forged without the key")
        if head == b"CMSG dropped":
            self.dropped += int(payload)
        elif head == b"CMSG error":
            raise Broken("clients", f"{self} is told {payload.decode()}")
        elif head.startswith(b"MSG "):
            self.others += 1

    def _complain(self, number: int, index: int) -> None:
        about = self._ledger.publishers[number].about(index)
        if any(got[:2] == (number, index) for got in self.got):
            raise Broken("once", f"{self} gets {about} a second time")
        if number not in self.host.jumped:
            raise Broken("order", f"{self} gets {about} after #{self._last[number]}")

    def follows(self, publisher: Publisher, index: int, now: float) -> bool:
        """Its host reads a message: whether that is the next of its source, and none is missing before it."""
        number = publisher.number
        following = self._next.get(number)
        if following is None:
            # It may have been told that there were some before.
            self._next[number], self._missing[number] = index + 1, set(range(index))
            if index > NEAR:
                self.host.jumped.add(number)
            if self._ledger.has_namesakes(publisher):  # its numbers jumped, so it begins with a gap
                self.host.jumped.add(number)
                self._missing[number].add(-1)
        missing = self._missing[number]
        if index > self._last.get(number, -1):
            self._read.setdefault((number, index), now)
        if following is None:
            return False
        if index < following:
            missing.discard(index)
            return False
        missing.update(range(following, index))
        if index - following >= NEAR and not self.host.world.scenario.key:
            self.host.jumped.add(number)
        self._next[number] = index + 1
        return not missing

    def must_have(self, publisher: Publisher, index: int, what: str) -> None:
        """It was to get the message by now."""
        if self._last.get(publisher.number, -1) < index:
            raise Broken("delay", f"{self} has not got {publisher.about(index)} yet: {what}")

    def __str__(self) -> str:
        return f"the client of {self.host.name} with {self.pattern}"


class Ledger:
    def __init__(self) -> None:
        self.publishers: list[Publisher] = []
        self.watchers: list[Watcher] = []
        self.labels: dict[bytes, Publisher] = {}
        # What was sent on each segment.
        self.spread: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        self._by_src: dict[bytes, list[Publisher]] = {}

    def publisher(self, src: bytes, host: "Host | PlainProgram", first: int) -> Publisher:
        """A program that begins to speak, under a name that another life may have had."""
        namesakes = self._by_src.setdefault(src, [])
        publisher = Publisher(len(self.publishers), src, len(namesakes), first, host)
        self.publishers.append(publisher)
        namesakes.append(publisher)
        self.labels[publisher.label] = publisher
        return publisher

    def watcher(self, host: "Host", session: Session, pattern: str) -> Watcher:
        watcher = Watcher(host, session, pattern, self)
        self.watchers.append(watcher)
        return watcher

    def said(self, src: bytes, seq: int) -> tuple[Publisher, int] | None:
        """Whose message has this number, and which of its it is."""
        for publisher in reversed(self._by_src.get(src, ())):
            if 0 <= seq - publisher.first < len(publisher.times):
                return publisher, seq - publisher.first
        return None

    def has_namesakes(self, publisher: Publisher) -> bool:
        """Whether the program spoke in an earlier life of its host, too."""
        return len(self._by_src[publisher.src]) > 1

    # -- at the end

    def check(self, world: "World") -> None:
        for host in world.hosts.values():
            if host.up:
                self._check_accounts(host)
                self._check_clients(host)
                _check_budgets(host, world)
                _check_rest(host, world)

    def _check_accounts(self, host: "Host") -> None:
        got: dict[int, list[int]] = {}
        for number, index, _ in host.witness.got:
            got.setdefault(number, []).append(index)
        here = {publisher.number for _, publisher in host.programs.values()}
        for publisher in self.publishers:
            if publisher.number not in here and not self.has_namesakes(publisher):
                _check_account(host, publisher, got.get(publisher.number, []))

    def _check_clients(self, host: "Host") -> None:
        """What each of a host got, beside its witness, who gets everything."""
        all_of_it = [(number, index) for number, index, _ in host.witness.got]
        for watcher in self.watchers:
            if watcher.host is not host or watcher.life != host.lives:
                continue
            wanted = [each for each in all_of_it if watcher.wants(self.publishers[each[0]].chans[each[1]])]
            got = [(number, index) for number, index, _ in watcher.got]
            if watcher.slow:
                there, total = len(got) + watcher.others + watcher.dropped, len(wanted) + host.witness.others
                if there != total or not set(got) <= set(wanted):
                    raise Broken("clients", f"{watcher} got {len(got)} and lost {watcher.dropped} of {total}")
            elif got != wanted:
                raise Broken(
                    "clients", f"{watcher} got {len(got)} messages, not the {len(wanted)} that it wants"
                )


def _check_account(host: "Host", publisher: Publisher, got: list[int]) -> None:
    account, src = host.relay.state.sources.get(publisher.src), publisher.src.decode()
    if account is None:
        if got:
            raise Broken(
                "account", f"{host.name} knows nothing of {src}, and delivered {len(got)} of its messages"
            )
        return
    first, last = account.first - publisher.first, account.last - publisher.first
    if first < 0 or last >= len(publisher.times):
        raise Broken(
            "account", f"{host.name} heard #{first} to #{last} of {src}, who said {len(publisher.times)}"
        )
    within = sum(first <= index <= last for index in got)
    span = last - first + 1
    if account.received != len(got):
        raise Broken("account", f"{host.name} counts {account.received} of {src}, and delivered {len(got)}")
    if account.lost < 0 or within + account.lost + account.late + account.left_out != span:
        raise Broken(
            "account",
            f"{host.name} heard #{first} to #{last} of {src}: {within} delivered, {account.lost} lost, "
            f"{account.late} late, {account.left_out} left out, {span} in all",
        )


def _check_budgets(host: "Host", world: "World") -> None:
    """What it sent of itself. A rate counted from second to second lets twice as many pass within one."""
    for kind, most in (("repair/resend", REQUESTS), ("repair/last", ANNOUNCEMENTS)):
        check_traffic(host.name, kind, world.network.times[host.number, kind], most)
    if host.plan.tight:
        rate = host.relay.state.rules.options.repair.rate
        check_traffic(host.name, "what is sent again", world.network.times[host.number, "again"], 2 * rate)


def check_memory(host: "Host") -> None:
    """What the relay keeps and holds back, against the bounds that its settings have."""
    state, options = host.relay.state, host.relay.state.rules.options.repair
    held = 0
    for gap in state.gaps:
        size = sum(message.size for message in gap.held)
        held += size
        if len(gap.held) > options.hold_messages or gap.size != size:
            raise Broken("memory", f"{host.name} holds {len(gap.held)} messages, {size} bytes, as {gap.size}")
    if held > options.hold_bytes or state.gaps.size != held:
        raise Broken("memory", f"{host.name} holds {held} bytes in all, as {state.gaps.size}")
    if state.sent.size > options.bytes:
        raise Broken("memory", f"{host.name} keeps {state.sent.size} bytes")


def check_traffic(name: str, kind: str, times: list[float], most: float) -> None:
    """No second has more than ``most`` of the datagrams at these times."""
    first = 0
    for at, when in enumerate(times):
        while times[first] <= when - 1.0:
            first += 1
        if at - first >= most:
            raise Broken(
                "traffic", f"{name} sends {at - first + 1} of {kind} within a second, at most {most:g}"
            )


def _check_rest(host: "Host", world: "World") -> None:
    """Nothing is due but heartbeats, and looks at whether somebody has fallen silent or is to be forgotten."""
    relay = host.relay
    relay.on_deadline(host.moment)
    state = relay.state
    expected = min(each.next_deadline() for each in (state.heartbeats, state.presence, state.sources))
    if relay.alarm.due < expected:
        raise Broken(
            "quiet",
            f"something is still due at {host.name}, {relay.alarm.due - host.moment.monotonic:.3f} s on",
        )


def delivered_share(world: "World") -> Counter[str]:
    """Of what hosts said that were up all along, to hosts that were: ``sent``, and ``delivered`` there."""
    counts: Counter[str] = Counter()
    hosts = [host for host in world.hosts.values() if host.up and host.lives == 1]
    for host in hosts:
        got = Counter(number for number, _, _ in host.witness.got)
        for publisher in world.ledger.publishers:
            if publisher.host is not host and publisher.host in hosts:
                counts["sent"] += sum(time >= host.plan.start for time in publisher.times)
                counts["delivered"] += got[publisher.number]
    return counts
