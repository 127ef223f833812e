"""Addresses of servers as people write them: what they mean, and what is refused."""

from __future__ import annotations

import random

import pytest

from headwater.errors import InvalidRequest
from headwater.protocol.address import PORT, Address, is_server, parse_address


def parsed(text: str, **environment: str) -> Address:
    return parse_address(text, environment)


def test_a_plain_address_names_host_and_port() -> None:
    address = parsed("hw://127.0.0.1:7171")

    assert (address.tls, address.hosts) == (False, (("127.0.0.1", 7171),))
    assert address.locations() == ["grpc://127.0.0.1:7171"]
    assert address.text == "hw://127.0.0.1:7171"


def test_an_address_with_tls_names_the_files_that_let_one_in() -> None:
    address = parsed("hws://log.example.com:1?token_file=/t&ca_file=ca.pem&cert_file=me.pem&key_file=me.key")

    assert address.tls and address.locations() == ["grpc+tls://log.example.com:1"]
    files = (address.token_file, address.ca_file, address.cert_file, address.key_file)
    assert files == ("/t", "ca.pem", "me.pem", "me.key")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("hw://a", (("a", PORT),)),
        ("hw://a/", (("a", PORT),)),
        ("hw://a:1,b:2", (("a", 1), ("b", 2))),
        ("hw://a,b", (("a", PORT), ("b", PORT))),
        ("hw://[::1]:9", (("::1", 9),)),
        ("hw://[::1]", (("::1", PORT),)),
        ("hw://[::1]:9,[fe80::2]", (("::1", 9), ("fe80::2", PORT))),
    ],
)
def test_several_servers_default_ports_and_ipv6(text: str, hosts: tuple[tuple[str, int], ...]) -> None:
    assert parsed(text).hosts == hosts


def test_an_ipv6_location_stands_in_brackets() -> None:
    assert parsed("hw://[::1]:9").locations() == ["grpc://[::1]:9"]


def test_the_environment_says_what_the_address_does_not() -> None:
    environment = {"HEADWATER_TOKEN_FILE": "/env", "HEADWATER_CA_FILE": "/ca", "HEADWATER_KEY_FILE": ""}

    address = parsed("hws://a?token_file=/given", **environment)

    assert (address.token_file, address.ca_file, address.key_file) == ("/given", "/ca", None)


def test_without_an_environment_the_processes_own_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CA_FILE", "/its/own")

    assert parse_address("hws://a").ca_file == "/its/own"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a:1",
        "http://a:1",
        "HW://a",
        "hw:/a",
        "data/",
        "s3://bucket/log",
        "hw://",
        "hw://:1",
        "hw://a:",
        "hw://a:0",
        "hw://a:65536",
        "hw://a:-1",
        "hw://a:1_000",
        "hw://a:١",
        "hw://a:99999999999999999999999999",
        "hw://a:1,",
        "hw://,a:1",
        "hw://a/b",
        "hw://a#b",
        "hw://a?x",
        "hw://a?password=1",
        "hw://a?token=secret",
        "hw://me@a",
        "hw://me:secret@a",
        "hw://[::1",
        "hw://::1]",
        "hw://[x]:1",
        "hw://a b:1",
        "hw://a\n:1",
        "hw://a?" + "&".join(f"token_file={each}" for each in range(10_000)),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parsed(text)


def test_a_secret_in_an_address_is_not_repeated() -> None:
    for text in ("hw://me:hunter2@a:1", "hw://hunter2@a"):
        with pytest.raises(InvalidRequest) as raised:
            parsed(text)
        assert "hunter2" not in str(raised.value)


def test_a_folder_and_a_bucket_are_no_servers() -> None:
    assert is_server("hw://a") and is_server("hws://a")
    assert not any(is_server(each) for each in ("data/", "s3://a/b", "hw:/a", "./hw://a", ""))


def test_any_text_is_an_address_or_refused_as_none() -> None:
    letters = "hws:/[]@?&=#,.%0179a\0\n\té\ud800 "
    for seed in range(20_000):
        chance = random.Random(seed)
        text = chance.choice(("hw://", "hws://", "")) + "".join(chance.choices(letters, k=chance.randrange(30)))
        try:
            address = parsed(text)
        except InvalidRequest:
            continue
        except Exception as error:  # anything else is the finding
            raise AssertionError(f"seed {seed}: {text!r} gives {error!r}") from error
        assert all(host and 0 < port < 65_536 for host, port in address.hosts), f"seed {seed}: {text!r}"
