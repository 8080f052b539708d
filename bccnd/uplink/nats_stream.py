"""A link in NATS: the subjects of its messages, and the JetStream stream that holds them.

    channel factory/line1 of the segment siteA        subject bccn.siteA.factory.line1

So ``nats sub 'bccn.siteA.factory.>'`` shows what the segment siteA exports below ``factory``.

- A subject is the name of the stream, the segment, and the tokens of the channel, which ``/`` divides.
- In segment and tokens a byte that NATS reserves (``.``, ``*``, ``>``), that is not printable ASCII, or that is ``%``
  becomes ``%`` and two hexadecimal digits: the channel ``a.b/c`` is ``a%2Eb.c``. An empty token becomes ``%`` alone.
  No two channels share a subject, except by the next rule.
- A subject of more than SUBJECT_LIMIT bytes ends early, after a whole token, with ``%%``: a longer line would end the
  connection. The datagram still has the whole channel.
- Datagrams that are not kept, such as a link's status, go to the two tokens ``bccn.siteA``. The stream takes
  ``bccn.*.>``, which is three tokens and more.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

# A server ends a connection after a line of 4096 bytes (max_control_line); subject, inbox and sizes share it.
SUBJECT_LIMIT = 1024

# Bytes of a message with its headers: the longest link datagram is 65498.
MESSAGE_BYTES = 128 << 10

# Seconds in which the server knows a repeated publish. It keeps an entry for each message of that time in memory.
DUPLICATE_SECONDS = 120.0

# Subjects of channels that are cached: further ones are translated again.
_KNOWN = 4096

# Exclusive, of places in a stream: those of a journal have 63 bits.
NUMBER_LIMIT = 1 << 63

# Characters of a reason that is shown.
REASON_LIMIT = 200

_ESCAPED = {each: f"%{each:02X}" for each in range(256) if not 0x21 <= each <= 0x7E or each in b".*>%"}


class Answer(NamedTuple):
    """The answer of a stream to a message. ``number``: its place, 0 for none; ``code``, ``refused``: why the stream
    did not take it, 0 and empty if it did.
    """

    stream: str = ""
    number: int = 0
    code: int = 0
    refused: str = ""


def _token(part: bytes) -> str:
    return part.decode("latin-1").translate(_ESCAPED) or "%"


def segment_subject(stream: str, segment: bytes) -> str:
    """The subject of a segment's datagrams that are not kept."""
    return f"{stream}.{_token(segment)}"


@lru_cache(_KNOWN)
def channel_subject(stream: str, segment: bytes, channel: bytes) -> str:
    """The subject of a channel's messages."""
    subject = ".".join([segment_subject(stream, segment), *map(_token, channel.split(b"/"))])
    if len(subject) <= SUBJECT_LIMIT:
        return subject
    return subject[: subject.rindex(".", 0, SUBJECT_LIMIT - len(".%%") + 1)] + ".%%"


def configuration(stream: str, replicas: int, max_bytes: int, max_age: float) -> dict[str, Any]:
    """The configuration of a new stream. The oldest messages go first, even if somebody has not read them."""
    return {
        "name": stream,
        "subjects": [f"{stream}.*.>"],
        "retention": "limits",
        "discard": "old",
        "storage": "file",
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_age": _nanoseconds(max_age),
        "max_msg_size": MESSAGE_BYTES,
        "duplicate_window": _nanoseconds(min(DUPLICATE_SECONDS, max_age)),
    }


def unfit(stream: str, config: Mapping[str, Any]) -> str:
    """Why an existing stream cannot carry a link; empty if it can."""
    subjects = config.get("subjects") or []
    per_subject, size = config.get("max_msgs_per_subject", -1), config.get("max_msg_size", -1)
    if not any(_covers(each, [stream, "segment", "token"]) for each in subjects) or not any(
        _covers(each, [stream, "segment", "two", "tokens"]) for each in subjects
    ):
        return f"it does not take {stream}.*.>"
    if any(_covers(each, [stream, "segment"]) for each in subjects):
        return f"it takes {stream}.* as well, and what is said there every second would fill it"
    if config.get("retention", "limits") != "limits":
        return f"its retention is {config['retention']}, not limits: one uplink would take from the others"
    if config.get("mirror") or config.get("sealed") or config.get("no_ack"):
        return "it is a mirror, sealed, or without acknowledgements"
    if per_subject > 0:
        return f"it keeps only {per_subject} messages of a subject"
    if 0 < size < MESSAGE_BYTES:
        return f"its messages have {size} bytes at most, and {MESSAGE_BYTES} are needed"
    return ""


def consumer(stream: str, first: int, idle_seconds: float) -> dict[str, Any]:
    """A consumer that begins at the sequence number ``first``, and disappears when nobody pulls."""
    return {
        "stream_name": stream,
        "config": {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _nanoseconds(idle_seconds),
            "num_replicas": 1,
            "mem_storage": True,
        },
    }


def pull(batch: int, seconds: float, heartbeat: float) -> dict[str, Any]:
    """A request to a consumer for so many messages. Without any for ``heartbeat``, it sends a heartbeat."""
    return {"batch": batch, "expires": _nanoseconds(seconds), "idle_heartbeat": _nanoseconds(heartbeat)}


def answer(payload: bytes) -> Answer:
    """Parse the answer to a publish; an empty one means that no stream takes the subject.

    Raises ValueError for anything that no stream sends: whoever sees the inbox can send an answer.
    """
    try:
        said = json.loads(payload) if payload else {}
        error = said.get("error") or {}
        code, refused = error.get("err_code", 0), error.get("description", "refused" if error else "")
        found = Answer(said.get("stream", ""), said.get("seq", 0), code, refused)
    except (AttributeError, RecursionError):
        raise ValueError("no answer of a stream") from None
    if not all(map(isinstance, found, (str, int, int, str))) or not 0 <= found.number < NUMBER_LIMIT:
        raise ValueError("no answer of a stream")
    return found._replace(refused=" ".join(found.refused[:REASON_LIMIT].split()))


def place(reply: str) -> tuple[int, int, int]:
    """The place of a pulled message: its number in the stream and in the consumer, and how many follow.

    Raises ValueError. (``$JS.ACK.<stream>.<consumer>.<tries>.<stream number>.<consumer number>.<time>.<to come>``,
    with a domain and an account after ``ACK`` since nats-server 2.10.)
    """
    tokens = reply.split(".")
    if tokens[:2] != ["$JS", "ACK"] or len(tokens) not in (9, 11, 12):
        raise ValueError(f"no place: {reply}")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 3])


def _covers(pattern: str, subject: list[str]) -> bool:
    tokens = pattern.split(".")
    if tokens[-1] == ">":
        subject = subject[: len(tokens) - 1] + [">"] * (len(subject) >= len(tokens))
    return len(tokens) == len(subject) and all(
        mine in ("*", its) for mine, its in zip(tokens, subject, strict=True)
    )


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
