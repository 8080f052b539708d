"""Bounds, defaults and immutability of the settings; how they are read is in test_configuration.py."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from bccnd.process.configuration import described, named_values
from bccnd.process.settings import Grant, Settings

MIB = 1 << 20
HERE = {"host": "relay01", "socket": "/run/bccnd/bus.sock"}


def fault(*layers: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        Settings(*layers, HERE)
    (error,) = caught.value.errors()
    return ".".join(map(str, error["loc"])) + ": " + error["msg"]


@pytest.mark.parametrize(
    ("name", "sound", "unsound"),
    [
        (
            "host",
            ["a", "relay01.lan", "x" * 64],
            ["", "a b", "a/b", "a:b", "a|b", "a*", "!a", "?", "ä", "x" * 65],
        ),
        ("socket", ["/s", "@", "@n", "fd:3", "fd:12", "/" + "x" * 106], ["", "fd:", "fd:2", "fd:x", "fd:03"]),
        ("socket", ["bus.sock", "/tmp/ü"], ["/" + "x" * 107, "/" + "ü" * 54, "/a\0b", "/a\nb", "/a\udcff"]),
        ("socket_mode", ["0660", "600", "0777"], ["66", "0888", "1777", "rw", 660]),
        ("socket_owner", ["root", "0", None], ["", 0]),
        (
            "broadcast",
            ["10.0.0.255", "127.255.255.255"],
            ["0.0.0.0", "10.0.0", "relay01", "::1", "1.2.3.4 ", 1],  # noqa: S104
        ),
        ("port", [1, 65535], [0, 65536, "5400", 5400.5, True]),
        (
            "interfaces",
            [[], ["eth0", "br-lan.100"]],
            ["eth0", ["a" * 16], ["ü" * 8], ["eth\udcff"], ["a b"], ["a/b"], [""], ["."], [1]],
        ),
        ("interfaces", [[f"eth{n}" for n in range(64)]], [[f"eth{n}" for n in range(65)], ["eth0", "eth0"]]),
        ("key_file", ["/etc/bccnd/keys"], ["", 1, "/a\0b"]),
        ("integrity", ["crc32", "none"], ["hmac", "sha", ""]),
        ("copies", [1, 4], [0, 5]),
        ("copies_spread_ms", [0, 1000], [-1, 1001]),
        (
            "local",
            [[], ["local/>", "a/b*/c", "*", ">", "a.b"]],
            [[""], ["!a"], ["a*b"], ["a b"], ["a:b"], ["a|b"]],
        ),
        (
            "rights",
            [
                [{}],
                [{"uid": 0, "gid": 4294967294, "program": "x" * 15, "tap": True, "bridge": False}],
                [{"uid": "root", "gid": "root"}, {"uid": "0", "gid": "4294967294"}],
                [{"program": program} for program in ("*", "x" * 15 + "*", "Web Content", "a/b")],
                [
                    {
                        "publish": ["!", "!>", "!h/>", "!*/p*/1", ">", "a/*/c"],
                        "subscribe": ["!", "a/"],
                        "name": ["h/>"],
                    }
                ],
                [{"publish": ["a"] * 256}] * 256,
            ],
            [
                [{"uid": -1}],
                [{"uid": 4294967295}],
                [{"uid": True}],
                [{"uid": "no-such-user"}],
                [{"gid": "no-such-group"}],
                [{"gid": ""}],
                [{"gid": 1.0}],
                [{"program": ""}],
                [{"program": "x" * 16}],
                [{"program": "a*b"}],
                [{"program": "ä"}],
                [{"publish": [""]}],
                [{"publish": ["!!"]}],
                [{"publish": ["a*b"]}],
                [{"publish": ["!a*b"]}],
                [{"publish": "a"}],
                [{"publish": ["a"] * 257}],
                [{"subscribe": ["!a"]}],
                [{"subscribe": ["a b"]}],
                [{"name": ["!"]}],
                [{"tap": 1}],
                [{"bridge": "yes"}],
                [{"users": []}],
                [{}] * 257,
                [],
                {},
            ],
        ),
        ("exit_when_idle", [True, False], [1, "yes"]),
        (
            "queue",
            [{"packets": 1, "bytes": 131072}],
            [{"packets": 0}, {"bytes": 131071}, 5, {"polcy": "block"}],
        ),
        (
            "queue",
            [{"packets": 9, "max_packets": 9}],
            [{"packets": 9, "max_packets": 8}, {"max_packets": 9999}],
        ),
        ("queue", [{"policy": "block"}], [{"policy": "drop"}, {"block_seconds": 0}, {"max_bytes": 1 << 20}]),
        ("queue", [{"total_bytes": 1 << 20}], [{"total_bytes": 1}, {"block_seconds": float("nan")}]),
        ("limits", [{"clients": 1, "local_payload": 65536}], [{"clients": 0}, {"local_payload": 65537}]),
        ("limits", [{"channels_cached": 1}], [{"channels_cached": 0}, {"subscriptions": 0}]),
        (
            "dedup",
            [{"sanity": 1, "reorder": 0}],
            [{"sanity": 0}, {"reorder": 1000}, {"sanity": 9, "reorder": 9}],
        ),
        ("dedup", [{"unknown": "by-address"}], [{"unknown": "?"}, {"sources": 0}, {"seconds": float("inf")}]),
        ("buffers", [{"receive_bytes": 4096}], [{"receive_bytes": 4095}, {"client_bytes": 131071}]),
        ("log", [{"level": "debug", "format": "json"}], [{"level": "trace"}, {"format": "xml"}]),
        ("colour", [], ["blue"]),
    ],
)
def test_bounds(name: str, sound: list[Any], unsound: list[Any]) -> None:
    for value in sound:
        Settings({name: value}, HERE)
    for value in unsound:
        assert fault({name: value}).startswith(name), value


@pytest.mark.parametrize("integrity", ["none", "crc32", None])
def test_replays_are_not_dropped_where_anybody_can_forge(integrity: str | None) -> None:
    rule = "dedup.replays: Value error, must not be drop without integrity = hmac"
    assert fault({"integrity": integrity, "dedup": {"replays": "drop"}}).startswith(rule)
    Settings({"key_file": "/k", "dedup": {"replays": "drop"}}, HERE)


@pytest.mark.parametrize(
    ("table", "values", "rule"),
    [
        (
            "queue",
            {"max_packets": 10, "packets": 11},
            "packets: must be at most queue.max_packets, which is 10",
        ),
        (
            "queue",
            {"max_bytes": MIB, "bytes": 2 * MIB},
            f"bytes: must be at most queue.max_bytes, which is {MIB}",
        ),
        ("dedup", {"sanity": 8, "reorder": 8}, "reorder: must be less than dedup.sanity, which is 8"),
        (
            "retain",
            {"patterns": ["a/>", "a b"]},
            "patterns: must be channel patterns: 1 to 1024 ASCII characters",
        ),
        ("limits", {"client": 1}, "client: Unexpected keyword argument"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table: str, values: dict[str, Any], rule: str) -> None:
    assert fault({table: values}).replace("Value error, ", "").startswith(f"{table}.{rule}")


def test_only_host_and_socket_are_required() -> None:
    settings = Settings(**HERE)
    assert (settings.host, settings.socket) == ("relay01", "/run/bccnd/bus.sock")
    assert (settings.port, settings.broadcast, settings.interfaces) == (5400, "255.255.255.255", ())
    assert settings.local == ("local/>",)
    assert settings.socket_permissions == 0o660
    with pytest.raises(ValidationError):
        Settings()


def test_integrity_follows_the_key_file_unless_it_is_given() -> None:
    keys = {"key_file": "/etc/bccnd/keys"}
    assert Settings(HERE).integrity == "none"
    assert Settings(keys, HERE).integrity == "hmac"
    assert Settings(keys, HERE).key_file == Path("/etc/bccnd/keys")
    assert Settings({"integrity": "crc32"}, keys, HERE).integrity == "crc32"
    assert "hmac without a key_file" in fault({"integrity": "hmac"})


def test_a_higher_layer_replaces_single_settings() -> None:
    settings = Settings(
        {"queue": {"packets": 5}}, {"queue": {"packets": 7, "bytes": 200_000}, "port": 1}, HERE
    )
    assert (settings.queue.packets, settings.queue.bytes, settings.port) == (5, 200_000, 1)


def test_the_process_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "1")
    monkeypatch.setenv("BCCND_PORT", "1")
    assert Settings(HERE).port == 5400


def test_settings_are_immutable() -> None:
    settings = Settings(HERE)
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1
    with pytest.raises(FrozenInstanceError):
        settings.queue.packets = 1


def test_every_setting_is_described() -> None:
    settings = list(described())
    names = {f"{each.table}.{each.name}".lstrip(".") for each in settings}
    grants = {f"rights.{name}" for name in Grant.model_fields}
    assert names == {name for name, _ in named_values(Settings(HERE))} - {"rights"} | grants
    for each in settings:
        assert each.about.endswith("."), each.table
        assert each.description.endswith("."), each.name


@pytest.mark.parametrize(
    "where", ["", "127.0.0.1:9540", "127.9.9.9:1", "[::1]:65535", "/run/bccnd/metrics.sock"]
)
def test_metrics_listen_on_this_host(where: str) -> None:
    assert Settings(host="h", socket="/s", metrics={"listen": where}).metrics.listen == where


@pytest.mark.parametrize(
    "where",
    ["0.0.0.0:9540", "10.0.0.1:9540", ":9540", "9540", "localhost:9540", "::1:9540", "[::]:9540", "127.0.0.1:0",
     "127.0.0.1:65536", "127.0.0.1", "127.0.0.1:\u0661", "metrics.sock", "/" + "a" * 107, "/a\0"],
)  # fmt: skip
def test_metrics_listen_nowhere_else(where: str) -> None:
    with pytest.raises(ValidationError, match=r"must be 127\.0\.0\.1:PORT"):
        Settings(host="h", socket="/s", metrics={"listen": where})
