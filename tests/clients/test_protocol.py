"""``clients/PROTOCOL.md`` shows a session as a daemon has it, and leaves out no word of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccn.exchange import ASK_AFTER, ASK_EVERY, QUESTIONS, TOKEN_LIMIT
from bccn.transport import BACKOFF_FIRST, BACKOFF_LIMIT
from bccnd import __version__
from bccnd.relay import answers
from bccnd.relay.control import Control
from bccnd.relay.dedup import Verdict
from bccnd.relay.delivery import ANSWERS_FATAL
from bccnd.relay.elsewhere import LEASE_SECONDS
from bccnd.relay.options import Limits, Queue
from bccnd.relay.outbox import ANSWERS_LIMIT, Policy
from bccnd.relay.router import HEARTBEATS, NOTICES
from bccnd.relay.router import QUESTIONS as ASKED_ON
from bccnd.relay.watches import TOLD_SECONDS
from bccnd.wire import sbus
from bccnd.wire.bccn1 import CHAN_LIMIT, SEND_LIMIT, SRC_LIMIT
from bccnd.wire.verdict import UNSOUND
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "clients" / "PROTOCOL.md").read_text()
RELAY = [*(ROOT / "bccnd" / "relay").glob("*.py"), *(ROOT / "bccnd" / "wire").glob("*.py")]

BLOCK = re.compile(r"^```session\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINE = re.compile(r"(desk [<>]|door [<>]|      ) ((?:[0-9a-f]{2} )+) *\|(.*)\|")
# The first sequence number in the document, and as a time in microseconds.
NUMBERS = 1_800_000_000_000_000


# --- the session ---


def packets() -> Iterator[tuple[str, str, bytes, str]]:
    """(who, ``>`` sent or ``<`` received, the packet, its text) in the order of the document."""
    for block in BLOCK.findall(TEXT):
        whole: list[tuple[str, str, bytes, str]] = []
        for line in block.splitlines():
            found = LINE.fullmatch(line)
            assert found, line
            piece, text = bytes.fromhex(found[2]), found[3]
            if found[1].strip():
                whole.append((found[1][:4], found[1][5], piece, text))
            else:  # the packet goes on
                who, direction, packet, begun = whole[-1]
                whole[-1] = who, direction, packet + piece, begun + text
        yield from whole


def as_text(packet: bytes) -> str:
    return "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in packet)


def with_numbers_of_the_document(packet: bytes, first_seqs: dict[bytes, int]) -> bytes:
    """Sequence numbers and times come from a clock. Each sender's first one becomes NUMBERS."""

    def renumbered(found: re.Match[bytes]) -> bytes:
        first = first_seqs.setdefault(found[1], int(found[2]))
        return b"]%b:%d:" % (found[1], NUMBERS + int(found[2]) - first)

    packet = re.sub(rb"\](\S+?):(\d{16}):", renumbered, packet)
    packet = re.sub(rb"^(RECV \S+ )\d{19} ", rb"\g<1>%d " % (NUMBERS * 1000), packet)
    return packet.replace(__version__.encode(), b"0.1.0")


def test_a_daemon_follows_the_documented_session(tmp_path: Path, loopback_port: int) -> None:
    first_seqs: dict[bytes, int] = {}
    flags = ["--host", "relay01", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, *flags) as daemon:
        clients = {"desk": PacketClient(daemon.socket), "door": PacketClient(daemon.socket)}
        for who, direction, packet, _ in packets():
            if direction == ">":
                clients[who].send(packet)
            else:
                got = with_numbers_of_the_document(clients[who].receive(), first_seqs)
                assert got == packet
        for client in clients.values():
            assert client.drain() == [], "more came than the document shows"
            client.close()


def test_hex_and_text_are_the_same_bytes() -> None:
    shown = list(packets())
    assert len(shown) > 30
    for _, _, packet, text in shown:
        assert text == as_text(packet)


def test_the_session_shows_every_kind_of_packet() -> None:
    kinds = {packet.partition(b" ")[0] for _, _, packet, _ in packets()}
    assert kinds >= set(sbus._KINDS)


# --- nothing is left out ---


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^##? |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"no section {title}"
    return found[1]


def error_codes() -> set[str]:
    """Of every ``PacketError`` in the source; a ``DeniedError`` is ``refused``."""
    found = {"refused"}
    for path in RELAY:
        found |= set(re.findall(r"(?:PacketError|FramingError)\(\s*\"([a-z-]+)\"", path.read_text()))
    assert len(found) > 10
    return found


def notices() -> set[str]:
    """The keys of every ``CMSG`` that comes without a request."""
    found = set()
    for path in RELAY:
        found |= set(re.findall(r"Cmsg\(b\"([a-z]+)\"", path.read_text()))
    return found - {"error"}


def reasons_for_closing() -> set[str]:
    sources = [*RELAY, ROOT / "bccnd" / "daemon" / "bus.py"]
    found = set()
    for path in sources:
        found |= set(re.findall(r"\.close\(session, \"([^\"]+)\"\)", path.read_text()))
    return found - {"gone"}  # nobody is left to read it


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Packets", {kind.decode() for kind in sbus._KINDS}),
        ("Control requests", {key.decode() for key in Control.KEYS}),
        ("Control requests", set(Policy)),
        ("Errors", error_codes()),
        ("Notices", notices() | reasons_for_closing()),
        (
            "The format `full`",
            {"ok", "retained", *UNSOUND, *(set(Verdict) - {Verdict.NEW, Verdict.RESTARTED})},
        ),
        ("The format `full`", {"own", "conflict", "local-channel", "unknown-source"}),
    ],
)
def test_every_word_of_the_code_is_documented(title: str, words: set[str]) -> None:
    """Written as code: `word`, alone or with what belongs to it."""
    text = section(title)
    assert {word for word in words if not re.search(rf"`(?:CMSG )?{re.escape(word)}[`␀\[ ]", text)} == set()


@pytest.mark.parametrize(
    ("title", "numbers"),
    [
        ("Limits", [SEND_LIMIT, CHAN_LIMIT, SRC_LIMIT, Limits().local_payload, Limits().subscriptions]),
        ("Limits", [Queue().packets, Limits().clients, ANSWERS_LIMIT, ANSWERS_FATAL]),
        ("Request and reply", [TOKEN_LIMIT, ASK_AFTER * 1000, ASK_EVERY * 1000, QUESTIONS]),
        ("Request and reply", [answers.LISTENERS_PER_SECOND, ASKED_ON.decode()]),
        ("Connecting again", [BACKOFF_FIRST * 1000, BACKOFF_LIMIT]),
        ("Watches", [round(1 / TOLD_SECONDS), LEASE_SECONDS, NOTICES.decode()]),
        ("Who is there", [HEARTBEATS.decode(), NOTICES.decode()]),
    ],
)
def test_documented_numbers_are_those_of_the_code(title: str, numbers: list[float | str]) -> None:
    text = section(title)
    for number in numbers:
        shown = number if isinstance(number, str) else f"{number:g}" if number < 1e6 else str(number)
        assert re.search(rf"(?<!\d){re.escape(shown)}(?!\d)", text), number


# Where each language declares its public functions, and what a declaration looks like.
DECLARED = {
    "python": ("python/bccn/[aco]*.py", r"^    (?:async )?def ([a-z]\w*)\(|^    ([a-z]\w*) = blocking\("),
    "c": ("c/bccn.h", r"^[\w ]+[ *]bccn_(\w+)\("),
    "c++": ("c/bccn.hpp", r"^ *(?:[\w:<>*&]+ )+[*&]?([a-z]\w*)\("),
    "go": ("go/*.go", r"^func (?:\(\w+ \*?\w+\) )?([A-Z]\w*)\("),
    "java": ("java/src/main/java/bccn/*.java", r"^    public (?:static )?[\w.<>\[\]]+ (\w+)\("),
    "javascript": (
        "javascript/bccn.d.ts",
        r"^(?:export function |export const |  (?:readonly )?)([a-z]\w*)[(:]",
    ),
    "rust": ("rust/src/[copr]*.rs", r"^ *pub (?:async )?fn (\w+)"),
    "perl": ("perl/lib/Net/Bccn.pm", r"^sub ([a-z]\w*) "),
    "shell": ("shell/bccn.sh", r"^bccn_(\w+)\(\)"),
}
# A constructor, a value or a variable where others have a function ("In each language").
OTHERWISE = {
    "python": {"open", "unsubscribe", "version", "matches", "lost"},
    "c": {"batch"},
    "c++": {"open", "unsubscribe"},
    "go": {"unsubscribe", "version", "dispatch", "fileno"},
    "java": {"open", "unsubscribe", "version", "dispatch", "fileno"},
    "javascript": {"open", "unsubscribe", "dispatch", "fileno"},
    "rust": {"unsubscribe", "version", "dispatch", "fileno", "reply"},
    "perl": {"open", "version"},
    "shell": {"version", "batch", "status", "clients", "sources", "send_datagram"},
}
# Names of programs that speak BCCN1, and those that clients once had.
FORMER = "send send_topic send_all send_to recv get_name whoami heartbeat_start next_answer replies_to publish_many"


def functions() -> list[str]:
    """The functions of a client, as the document lists them."""
    table = section("The functions of a client").partition("\n\n|")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)(?:\(.*?\))?`", "\n".join(row.split("|")[1] for row in table.splitlines()[2:]))


def declared(language: str) -> set[str]:
    files, declaration = DECLARED[language]
    text = "\n".join(
        path.read_text() for path in sorted((ROOT / "clients").glob(files)) if "_test" not in path.name
    )
    names = {"".join(each) for each in re.findall(declaration, text, re.MULTILINE)}
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in names}


@pytest.mark.parametrize("language", DECLARED)
def test_every_language_has_the_functions_of_the_table(language: str) -> None:
    names = functions()
    assert len(names) > 25
    assert set(names) - declared(language) - OTHERWISE[language] == set()


@pytest.mark.parametrize("language", DECLARED)
def test_no_language_has_second_names(language: str) -> None:
    assert declared(language) & set(FORMER.split()) == set()


@pytest.mark.parametrize("language", ["python", "c", "perl", "shell"])
def test_a_time_in_nanoseconds_says_so_in_its_name(language: str) -> None:
    """Programs would take another number for one of seconds."""
    suffixes = (".py", ".h", ".3", ".pm", ".pl", ".t", ".sh", ".md")
    files = [path for path in (ROOT / "clients" / language).rglob("*") if path.suffix in suffixes]
    text = "\n".join(path.read_text() for path in files)
    assert re.search(r"\bBCCN_TIME_NS\b|\btime_ns\b", text)
    assert not re.search(r"\bBCCN_TIME\b|\btime\s+=>|>\{time\}", text)


def test_the_names_of_bccn1_programs_are_explained() -> None:
    names = "send recv get_name get_seq set_seq listen send_all send_to send_topic heartbeat_start fd"
    for name in names.split():
        assert f"`bccn_{name}" in section("The functions of a client"), name


def test_each_open_question_has_one_line() -> None:
    """30 topics of three questions; a line for each."""
    title = "Questions every message system has to answer"
    topics = re.split(r"^\*\*(.+)\*\*$", section(title), flags=re.MULTILINE)[1:]
    assert len(topics) == 2 * 30
    for topic, text in zip(topics[::2], topics[1::2], strict=True):
        assert len(re.findall(r"^- .+\? .+[.)]$", text, re.MULTILINE)) == 3, topic
        assert len(text.strip().splitlines()) == 3, topic
