"""A classic BPF filter for UDP sockets: the kernel drops datagrams that do not begin with four given bytes.

Rules
- On a UDP socket, over IPv4 and IPv6 alike, the filter sees a datagram from its UDP header on. A load beyond the end
  of a datagram ends the program and refuses the datagram, so that a short one needs no instruction of its own.
- The kernel counts refused datagrams together with those that did not fit the receive buffer; ``net.drops``
  separates the two.
"""

import ctypes
import socket
from collections.abc import Iterable
from contextlib import suppress
from struct import pack

# Operations (linux/filter.h, linux/bpf_common.h).
# BPF_LD | BPF_W | BPF_ABS: load the big-endian word at an offset into the accumulator.
_LOAD_WORD = 0x20
# BPF_JMP | BPF_JEQ | BPF_K: skip one number of instructions if the accumulator equals the operand, another if not.
_JUMP_IF_EQUAL = 0x15
# BPF_RET | BPF_K: keep this many bytes of the datagram.
_RETURN = 0x06

_SO_ATTACH_FILTER = 26
_SO_DETACH_FILTER = 27

UDP_HEADER = 8  # bytes
REFUSE, ACCEPT = 0, 0xFFFFFFFF

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, operand


def program(beginning: bytes) -> tuple[Instruction, ...]:
    """The program that keeps datagrams with this ``beginning`` of four bytes."""
    return (
        (_LOAD_WORD, 0, 0, UDP_HEADER),
        (_JUMP_IF_EQUAL, 0, 1, int.from_bytes(beginning, "big")),
        (_RETURN, 0, 0, ACCEPT),
        (_RETURN, 0, 0, REFUSE),
    )


def assemble(instructions: Iterable[Instruction]) -> bytes:
    """The instructions as an array of struct sock_filter."""
    return b"".join([pack("=HBBI", *instruction) for instruction in instructions])


def attach(sock: socket.socket, beginning: bytes) -> None:
    """Have the kernel refuse other datagrams from now on. Those that already wait to be read stay."""
    code = assemble(program(beginning))
    held = ctypes.create_string_buffer(code, len(code))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pack("@HP", len(code) // 8, ctypes.addressof(held)))


def detach(sock: socket.socket) -> None:
    """Have the kernel let every datagram in again."""
    with suppress(FileNotFoundError):  # there was none
        sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
