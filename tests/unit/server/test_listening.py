"""Where a server may listen without knowing who calls: on loopback, and nowhere else."""

from __future__ import annotations

import socket

import pytest

from headwater.errors import InvalidRequest
from headwater.server.listening import check_listening, is_loopback
from headwater.server.settings import ServerSettings, TlsFiles

TLS, MUTUAL_TLS = TlsFiles("c.pem", "c.key"), TlsFiles("c.pem", "c.key", "ca.pem")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "::ffff:127.0.0.1"])
def test_loopback_is_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "2001:db8::1", "::ffff:10.0.0.1"])
def test_anything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_one_address_of_a_name_that_is_not_loopback_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in ("127.0.0.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)

    assert not is_loopback("a-name-of-this-machine")


def test_a_host_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"no-such-host\.invalid"):
        is_loopback("no-such-host.invalid")
    with pytest.raises(InvalidRequest):
        is_loopback("a" * 300)


@pytest.mark.parametrize("tls", [None, TLS, MUTUAL_TLS])
@pytest.mark.parametrize("tokens", [False, True])
def test_beyond_loopback_both_are_needed_tls_and_a_way_to_tell_who_calls(tls: TlsFiles | None, tokens: bool) -> None:
    enough = tls is MUTUAL_TLS or (tls is TLS and tokens)

    for settings in (
        ServerSettings(listen=("0.0.0.0", 7070), tls=tls, tokens=tokens),
        ServerSettings(http=("0.0.0.0", 7071), tls=tls, tokens=tokens),
        ServerSettings(listen=("::", 7070), http=None, tls=tls, tokens=tokens),
    ):
        if enough:
            check_listening(settings)
            continue
        with pytest.raises(InvalidRequest) as refused:
            check_listening(settings)
        assert ("--tls-cert" in str(refused.value)) is (tls is None)
        assert ("--tokens" in str(refused.value)) is not tokens


def test_on_loopback_nothing_is_needed() -> None:
    check_listening(ServerSettings())
    check_listening(ServerSettings(listen=("localhost", 0), http=None))


def test_the_refusal_names_the_option_and_what_to_give() -> None:
    with pytest.raises(InvalidRequest, match=r"--http 0\.0\.0\.0:7071 .* listen on 127\.0\.0\.1"):
        check_listening(ServerSettings(http=("0.0.0.0", 7071)))
