from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED_TYPE: _ClassVar[Type]
    MESSAGE: _ClassVar[Type]
    INTENT: _ClassVar[Type]
    INTENTS: _ClassVar[Type]
    INTEREST: _ClassVar[Type]
    INTERESTS: _ClassVar[Type]
    NOTIFY_INTENT: _ClassVar[Type]
    RESULT: _ClassVar[Type]
    PING: _ClassVar[Type]
    PONG: _ClassVar[Type]
    HANDSHAKE: _ClassVar[Type]
    PEERS: _ClassVar[Type]
    ADDRBOOK: _ClassVar[Type]
    USER_TYPES: _ClassVar[Type]

class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED_STAGE: _ClassVar[Stage]
    INITIAL: _ClassVar[Stage]
    FINAL: _ClassVar[Stage]
    UPDATE: _ClassVar[Stage]
UNSPECIFIED_TYPE: Type
MESSAGE: Type
INTENT: Type
INTENTS: Type
INTEREST: Type
INTERESTS: Type
NOTIFY_INTENT: Type
RESULT: Type
PING: Type
PONG: Type
HANDSHAKE: Type
PEERS: Type
ADDRBOOK: Type
USER_TYPES: Type
UNSPECIFIED_STAGE: Stage
INITIAL: Stage
FINAL: Stage
UPDATE: Stage

class Header(_message.Message):
    __slots__ = ("receive_timestamp", "timestamp", "type", "want_result", "signature", "route")
    RECEIVE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    WANT_RESULT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    receive_timestamp: int
    timestamp: int
    type: Type
    want_result: bool
    signature: bytes
    route: str
    def __init__(self, receive_timestamp: _Optional[int] = ..., timestamp: _Optional[int] = ..., type: _Optional[_Union[Type, str]] = ..., want_result: _Optional[bool] = ..., signature: _Optional[bytes] = ..., route: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("nonce", "error", "description")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    error: int
    description: str
    def __init__(self, nonce: _Optional[int] = ..., error: _Optional[int] = ..., description: _Optional[str] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("receive_timestamp", "ping_timestamp", "payload")
    RECEIVE_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PING_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    receive_timestamp: int
    ping_timestamp: int
    payload: bytes
    def __init__(self, receive_timestamp: _Optional[int] = ..., ping_timestamp: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Intent(_message.Message):
    __slots__ = ("route", "hops", "ttl", "register")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    route: str
    hops: int
    ttl: int
    register: bool
    def __init__(self, route: _Optional[str] = ..., hops: _Optional[int] = ..., ttl: _Optional[int] = ..., register: _Optional[bool] = ...) -> None: ...

class Intents(_message.Message):
    __slots__ = ("intents",)
    INTENTS_FIELD_NUMBER: _ClassVar[int]
    intents: _containers.RepeatedCompositeFieldContainer[Intent]
    def __init__(self, intents: _Optional[_Iterable[_Union[Intent, _Mapping]]] = ...) -> None: ...

class Interest(_message.Message):
    __slots__ = ("route", "hops", "ttl", "register")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    route: str
    hops: int
    ttl: int
    register: bool
    def __init__(self, route: _Optional[str] = ..., hops: _Optional[int] = ..., ttl: _Optional[int] = ..., register: _Optional[bool] = ...) -> None: ...

class Interests(_message.Message):
    __slots__ = ("interests",)
    INTERESTS_FIELD_NUMBER: _ClassVar[int]
    interests: _containers.RepeatedCompositeFieldContainer[Interest]
    def __init__(self, interests: _Optional[_Iterable[_Union[Interest, _Mapping]]] = ...) -> None: ...

class NotifyIntent(_message.Message):
    __slots__ = ("route",)
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    route: str
    def __init__(self, route: _Optional[str] = ...) -> None: ...

class Handshake(_message.Message):
    __slots__ = ("me", "you", "stage", "intents", "interests", "public_key")
    ME_FIELD_NUMBER: _ClassVar[int]
    YOU_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    INTENTS_FIELD_NUMBER: _ClassVar[int]
    INTERESTS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    me: str
    you: str
    stage: Stage
    intents: _containers.RepeatedCompositeFieldContainer[Intent]
    interests: _containers.RepeatedCompositeFieldContainer[Interest]
    public_key: bytes
    def __init__(self, me: _Optional[str] = ..., you: _Optional[str] = ..., stage: _Optional[_Union[Stage, str]] = ..., intents: _Optional[_Iterable[_Union[Intent, _Mapping]]] = ..., interests: _Optional[_Iterable[_Union[Interest, _Mapping]]] = ..., public_key: _Optional[bytes] = ...) -> None: ...

class Peers(_message.Message):
    __slots__ = ("ids", "remove")
    IDS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    remove: bool
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., remove: _Optional[bool] = ...) -> None: ...

class AddrbookEntry(_message.Message):
    __slots__ = ("peer", "max_attempts", "default_backoff", "max_backoff", "backoff_multiplier", "attempts", "failed_attempts", "last_success", "backoff", "persistent")
    PEER_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MAX_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LAST_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    PERSISTENT_FIELD_NUMBER: _ClassVar[int]
    peer: str
    max_attempts: int
    default_backoff: int
    max_backoff: int
    backoff_multiplier: float
    attempts: int
    failed_attempts: int
    last_success: int
    backoff: int
    persistent: bool
    def __init__(self, peer: _Optional[str] = ..., max_attempts: _Optional[int] = ..., default_backoff: _Optional[int] = ..., max_backoff: _Optional[int] = ..., backoff_multiplier: _Optional[float] = ..., attempts: _Optional[int] = ..., failed_attempts: _Optional[int] = ..., last_success: _Optional[int] = ..., backoff: _Optional[int] = ..., persistent: _Optional[bool] = ...) -> None: ...

class Addrbook(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AddrbookEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[AddrbookEntry, _Mapping]]] = ...) -> None: ...
