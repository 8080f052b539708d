"""An operator, an account and a user of NATS, each a JWT that the one before has signed, as ``nsc`` makes them."""

import base64
import json
import os
from dataclasses import dataclass

import nkeys

_UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
_STORED = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)


@dataclass(frozen=True)
class Account:
    """``configuration``: of a server; ``credentials``: the file of a user; ``strange``: one of another account's."""

    configuration: str
    credentials: str
    strange: str


def make_account() -> Account:
    operator, system, ours, strange = (
        _pair(prefix) for prefix in (nkeys.PREFIX_BYTE_OPERATOR, *[nkeys.PREFIX_BYTE_ACCOUNT] * 3)
    )
    known = {
        _name(system): _jwt("account", system, operator, limits=_UNLIMITED),
        _name(ours): _jwt("account", ours, operator, limits=_UNLIMITED | _STORED | {"wildcards": True}),
    }
    resolved = "\n".join(f"{name}: {jwt}" for name, jwt in known.items())
    configuration = (
        f"operator: {_jwt('operator', operator, operator)}\nsystem_account: {_name(system)}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{resolved}\n}}"
    )
    return Account(configuration, _credentials(ours), _credentials(strange))


def _credentials(account: nkeys.KeyPair) -> str:
    user = _pair(nkeys.PREFIX_BYTE_USER)
    jwt = _jwt("user", user, account, subs=-1, data=-1, payload=-1)
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{bytes(user.seed).decode()}\n------END USER NKEY SEED------\n"
    )


def _pair(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), prefix)))


def _name(pair: nkeys.KeyPair) -> str:
    return bytes(pair.public_key).decode()


def _jwt(kind: str, subject: nkeys.KeyPair, signer: nkeys.KeyPair, **nats: object) -> str:
    claims = {
        "jti": kind,
        "iat": 1,
        "iss": _name(signer),
        "sub": _name(subject),
        "name": kind,
        "nats": {"type": kind, "version": 2, **nats},
    }
    signed = f"{_encoded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_encoded(claims)}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _encoded(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
