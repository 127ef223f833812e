"""Who calls: headers as they come, and asked for again while a stream is open."""

from __future__ import annotations

import pytest
from pyarrow import flight

from headwater.clock import ManualClock
from headwater.errors import Conflict, InvalidRequest, Unauthenticated, Unavailable
from headwater.server.access import EVERYBODY, Principal
from headwater.server.callers import ASK_AGAIN_S, Asked, Caller, CallerFactory


def test_whoever_holds_a_stream_open_is_asked_again_who_it_is() -> None:
    clock = ManualClock()
    known = [True]

    def authenticate(authorization: str | None, certificate: str | None) -> Principal:
        if not known[0]:
            raise Unauthenticated("not any more")
        return Principal(f"{authorization} {certificate}")

    who = Asked(authenticate, Caller({"authorization": ["Bearer x"]}), "a certificate", clock)
    known[0] = False

    assert who().name == "Bearer x a certificate"
    clock.advance(ASK_AGAIN_S)
    with pytest.raises(Unauthenticated):
        who()


def test_a_stream_of_a_stranger_ends_before_anything_of_it_is_read() -> None:
    def nobody(authorization: str | None, certificate: str | None) -> Principal:
        raise Unauthenticated("who are you")

    with pytest.raises(flight.FlightUnauthenticatedError):
        CallerFactory(nobody, by_certificate=False).start_call(None, {})
    with pytest.raises(flight.FlightUnauthenticatedError):
        CallerFactory(nobody, by_certificate=True).start_call(None, {"authorization": ["Bearer x"]})

    assert CallerFactory(nobody, by_certificate=True).start_call(None, {}).authorization is None


def test_a_header_that_comes_twice_is_not_guessed_at() -> None:
    with pytest.raises(Unauthenticated):
        Caller({"authorization": ["Bearer a", "Bearer b"]})
    with pytest.raises(Unauthenticated):
        Caller({"authorization": ["Bearer a"], "Authorization": ["Bearer b"]})
    assert Caller({"Authorization": [b"Bearer a"]}).authorization == "Bearer a"


@pytest.mark.parametrize(
    ("header", "value", "kind"),
    [
        ("hw-version", "2", InvalidRequest),
        ("hw-shard", "1", Conflict),
        ("hw-epoch", "8", Unavailable),
        ("hw-epoch", "-1", InvalidRequest),
        ("hw-epoch", "٣", InvalidRequest),
        ("hw-epoch", "9" * 20, InvalidRequest),
    ],
)
def test_a_caller_that_means_another_log_is_refused(header: str, value: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Caller({header: [value]}).check_meant(7)


def test_a_caller_that_has_heard_of_us_or_of_an_earlier_owner_is_let_through() -> None:
    Caller({"hw-version": ["1"], "hw-shard": ["0"], "hw-epoch": ["7"]}).check_meant(7)
    Caller({"hw-epoch": ["6"]}).check_meant(7)
    Caller({}).check_meant(7)
    assert CallerFactory(lambda *_: EVERYBODY, by_certificate=False).start_call(None, {}).authorization is None
