"""An error behind a call: it fits, it arrives through gRPC itself, and what is cut says so."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.errors import HeadwaterError, InvalidRequest, LandingHalted, RefusedRow, RowsRefused
from headwater.protocol.codec import unpack
from headwater.protocol.failures import Failure, error_of
from headwater.protocol.trailers import TRAILER_BYTES_MAX, status_text, trailer_of
from tests.unit.protocol.every_error import ALL

LONG = "größer 🙂 " * 2_000
LARGE: list[HeadwaterError] = [
    InvalidRequest(LONG),
    InvalidRequest("no", got=LONG),
    InvalidRequest("no", got=[LONG, LONG]),
    InvalidRequest("no", **{f"fact_{each}": LONG for each in range(30)}),
    InvalidRequest(LONG, **{f"fact_{each}": each for each in range(1_000)}),
    InvalidRequest("no", **{LONG: 1}),
    RowsRefused("orders", [RefusedRow(each, "a reason of some length, " * 3) for each in range(1_000)], 5_000),
    RowsRefused(LONG, [RefusedRow(each, LONG) for each in range(5)], 5),
    LandingHalted(LONG, LONG, table=LONG),
]


class Raising(flight.FlightServerBase):  # type: ignore[misc]
    """A server that raises the error of this number."""

    def do_action(self, _context: object, action: flight.Action) -> Iterator[flight.Result]:
        error = LARGE[int(action.type)]
        raise flight.FlightServerError(status_text(error), trailer_of(error))


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_of_common_size_goes_whole(error: HeadwaterError) -> None:
    back = error_of(unpack(trailer_of(error), Failure))

    assert type(back) is type(error) and str(back) == str(error) and back.facts == error.facts


@pytest.mark.parametrize("error", LARGE, ids=lambda error: f"{type(error).__name__}, {len(str(error))}")
def test_a_large_one_fits_and_keeps_its_kind(error: HeadwaterError) -> None:
    data = trailer_of(error)
    back = error_of(unpack(data, Failure))

    assert len(data) <= TRAILER_BYTES_MAX
    assert type(back) is type(error)
    assert back.message[:100] == error.message[:100]


def test_a_text_that_was_cut_says_so() -> None:
    back = error_of(unpack(trailer_of(InvalidRequest(LONG, got=LONG)), Failure))

    assert back.message.endswith(" …") and str(back.facts["got"]).endswith(" …")


def test_of_refused_rows_as_many_are_told_as_fit_and_all_are_counted() -> None:
    back = error_of(unpack(trailer_of(LARGE[6]), Failure))

    assert isinstance(back, RowsRefused)
    assert len(back.refused) > 10 and back.refused_count == 1_000 and back.rows == 5_000


def test_each_arrives_through_grpc_every_time() -> None:
    with Raising("grpc://127.0.0.1:0") as server, flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        for number, error in enumerate(LARGE):
            for _ in range(10):
                with pytest.raises(flight.FlightServerError) as raised:
                    list(client.do_action(flight.Action(str(number), pa.py_buffer(b""))))
                assert type(error_of(unpack(raised.value.extra_info, Failure))) is type(error)


def test_the_status_names_the_kind_in_a_short_line() -> None:
    assert status_text(InvalidRequest("no such thing", at=1)) == "InvalidRequest: no such thing"
    assert len(status_text(InvalidRequest(LONG)).encode()) < 200
