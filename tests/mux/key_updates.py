"""A client of TLS that changes its keys as often as it likes. Python's ``ssl`` cannot: this calls OpenSSL itself."""

import ctypes
from ctypes.util import find_library
from pathlib import Path

_PEM = 1
# With its own new key it asks for one of the other side, which answers with a record.
_REQUESTED = 1
_POINTERS = ("TLS_client_method", "SSL_CTX_new", "SSL_new")


def library() -> ctypes.CDLL | None:
    """None where there is no libssl to be loaded."""
    name = find_library("ssl")
    if name is None:
        return None
    found = ctypes.CDLL(name)
    for function in _POINTERS:
        getattr(found, function).restype = ctypes.c_void_p
    return found


class KeyChanger:
    """On a connected socket, which it does not close. It trusts everybody."""

    def __init__(self, libssl: ctypes.CDLL, descriptor: int, certificate: Path, key: Path) -> None:
        self._libssl = libssl
        context = ctypes.c_void_p(libssl.SSL_CTX_new(ctypes.c_void_p(libssl.TLS_client_method())))
        assert libssl.SSL_CTX_use_certificate_file(context, bytes(certificate), _PEM) == 1
        assert libssl.SSL_CTX_use_PrivateKey_file(context, bytes(key), _PEM) == 1
        self._ssl = ctypes.c_void_p(libssl.SSL_new(context))
        libssl.SSL_CTX_free(context)
        assert libssl.SSL_set_fd(self._ssl, descriptor) == 1

    def connect(self) -> bool:
        """As far as it goes at once. Whether the handshake is over."""
        return bool(self._libssl.SSL_connect(self._ssl) == 1)

    def change_key(self) -> bool:
        """One record more. False: the socket takes no more."""
        libssl = self._libssl
        return bool(
            libssl.SSL_key_update(self._ssl, _REQUESTED) == 1 and libssl.SSL_do_handshake(self._ssl) == 1
        )

    def write(self, data: bytes) -> bool:
        return bool(self._libssl.SSL_write(self._ssl, data, len(data)) == len(data))

    def close(self) -> None:
        self._libssl.SSL_free(self._ssl)
