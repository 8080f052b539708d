"""What a link by NATS is told: each mistake is one line that names it, and no secret is in it."""

from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.errors import BccndError, ConfigError
from bccnd.uplink.nats_options import NatsOptions, servers_of

CREDENTIALS = "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\ny\n"


def secret(path: Path, content: str = "opensesame\n", mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("nats://a", ("nats://a:4222",)),
        ("nats://a:4333/", ("nats://a:4333",)),
        ("tls://a,b:1", ("tls://a:4222", "tls://b:1")),
        ("nats://a, nats://b", ("nats://a:4222", "nats://b:4222")),
        ("nats://[::1]:5,10.0.0.1", ("nats://[::1]:5", "nats://10.0.0.1:4222")),
    ],
)
def test_servers_of_a_url(text: str, servers: tuple[str, ...]) -> None:
    assert servers_of(text) == servers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:4222",
        "http://a",
        "nats://",
        "nats://a,,b",
        "nats://a:x",
        "nats://a:99999",
        "nats://a b",
        "nats://a/b",
    ],
)
def test_a_url_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        servers_of(text)
    assert "\n" not in str(caught.value)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="user or password in the URL") as caught:
        servers_of("nats://me:opensesame@a")
    assert "opensesame" not in str(caught.value)


def test_each_way_to_say_who_we_are(tmp_path: Path) -> None:
    plain = NatsOptions(("nats://a",))
    line, credentials = secret(tmp_path / "line"), secret(tmp_path / "creds", CREDENTIALS)
    for options, login in [
        (plain, {}),
        (replace(plain, user="me", password=line), {"user": "me", "password": "opensesame"}),
        (replace(plain, token=line), {"token": "opensesame"}),
        (replace(plain, credentials=credentials), {"user_credentials": CREDENTIALS}),
    ]:
        options.check()
        assert options.login() == login


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"stream": "a.b"}, "nats_stream 'a.b': must be 1 to 64 letters"),
        ({"stream": ""}, "nats_stream ''"),
        ({"replicas": 6}, "nats_replicas 6"),
        ({"user": "me"}, "nats_user and nats_password_file go together"),
        ({"password": "line"}, "nats_user and nats_password_file go together"),
        ({"user": "me", "password": "line", "token": "line"}, "give one of nats_credentials"),
        ({"cert": "line"}, "nats_cert_file and nats_key_file go together"),
        ({"token": "missing"}, "token file {folder}/missing: no such file"),
        ({"token": "open"}, "token file {folder}/open: mode 0644 lets others at it"),
        ({"token": "two"}, "token file {folder}/two: must be one line"),
        ({"credentials": "line"}, "credentials file {folder}/line: holds no JWT"),
        ({"ca": "missing"}, "nats_ca_file {folder}/missing: No such file"),
        ({"ca": "line"}, "nats_ca_file {folder}/line: no certificate or key in PEM"),
        (
            {"cert": "line", "key": "line"},
            "nats_cert_file {folder}/line, nats_key_file {folder}/line: no certificate or key",
        ),
    ],
)
def test_a_mistake_is_one_line(changed: dict[str, str | int], problem: str, tmp_path: Path) -> None:
    secret(tmp_path / "line")
    secret(tmp_path / "open", mode=0o644)
    secret(tmp_path / "two", "opensesame\nopensesame\n")
    files = {"password", "token", "credentials", "ca", "cert", "key"}
    placed = {name: tmp_path / str(value) if name in files else value for name, value in changed.items()}
    with pytest.raises(BccndError) as caught:
        NatsOptions(("nats://a",), **placed).check()  # type: ignore[arg-type]
    assert str(caught.value).startswith(problem.format(folder=tmp_path))
    assert "\n" not in str(caught.value)
    assert "opensesame" not in str(caught.value)


def test_tls_is_demanded_by_the_url_or_by_certificates() -> None:
    plain = NatsOptions(("nats://a",))
    assert not plain.demands_tls("nats://a:4222")
    assert plain.demands_tls("tls://a:4222")
    assert replace(plain, ca=Path("ca.pem")).demands_tls("nats://a:4222")
