"""Rejected rows that fit after all: once each, whatever crashes, and nothing guessed."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.api import Log
from headwater.errors import InvalidRequest, OffsetMismatch, OutcomeUnknown, TooLarge
from headwater.topics import redrive as module
from headwater.topics.redrive import Counts, Redriven, counts, redrive
from tests.unit.topics.small_engines import World, engine_of, with_log

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("note", pa.string())])


def a_log(world: World | None = None, **options: Any) -> Log:
    """Of five rows two do not fit: one is too large for the column, one has a column that there is not."""
    log = (World() if world is None else world).log()
    log.topic("a", SCHEMA, **options)
    rows = [{"id": 1}, {"id": 1 << 40}, {"id": 2}, {"id": 3, "colour": "red"}, {"id": 4}]
    assert log["a"].append(rows, rejected="keep").rejected == 2
    return log


def again(log: Log, **options: Any) -> Redriven:
    engine = engine_of(log)
    return redrive(engine, engine.topic("a"), **options)


def told(done: Redriven) -> tuple[int, int, int]:
    return done.fitted, done.still_rejected, done.already_taken


def ids(log: Log) -> list[int]:
    return [row["id"] for row in log["a"].read().to_pylist()]


def counted(log: Log) -> Counts:
    engine = engine_of(log)
    return counts(engine, engine.topic("a"))


# As they were sent --------------------------------------------------------------------------------


def test_rows_that_fit_after_an_alteration_are_appended_once() -> None:
    log = a_log()
    assert told(again(log)) == (0, 2, 0)
    assert counted(log) == (3, 2, 0)

    log["a"].alter(add={"colour": str})
    assert told(again(log)) == (1, 1, 0)
    assert told(again(log)) == (0, 1, 1)
    assert again(log).left == 1
    log["a"].alter(widen={"id": pa.int64()})
    assert told(again(log)) == (1, 0, 1)
    assert told(again(log)) == (0, 0, 2)

    assert ids(log) == [1, 2, 4, 3, 1 << 40]
    assert counted(log) == (5, 2, 2)


def test_a_dry_run_says_what_would_be_and_writes_nothing() -> None:
    log = a_log()
    log["a"].alter(add={"colour": str})
    before = engine_of(log).durable_lsn()

    done = again(log, dry_run=True)

    assert told(done) == (1, 1, 0) and done.writes == 0
    assert [(each.partition, each.offset) for each in done.refused] == [(0, 0)]
    assert "out of range" in done.refused[0].reason
    assert engine_of(log).durable_lsn() == before
    assert "a.redriven" not in log


def test_a_topic_without_rejected_rows_has_nothing_to_be_redriven() -> None:
    log = World().log()
    log.topic("a", SCHEMA)
    log.topic("a.rejected", SCHEMA)

    assert told(again(log)) == (0, 0, 0)
    assert told(again(log, corrected=[])) == (0, 0, 0)
    assert counted(log) == (0, 0, 0)
    with pytest.raises(InvalidRequest, match="no rejected rows"):
        again(log, corrected=[{"_hw_partition": 0, "_hw_offset": 0, "id": 1}])


def test_rows_of_a_keyed_topic_are_upserted() -> None:
    log = World().log()
    log.topic("a", SCHEMA, key="id", partitions=3)
    log["a"].append([{"id": 1, "note": "x"}, {"id": 1, "colour": "red"}], rejected="keep")
    log["a"].alter(add={"colour": str})

    assert told(again(log)) == (1, 0, 0)
    assert log["a"].read().to_pylist()[-1] == {"id": 1, "note": None, "colour": "red", "_hw_op": "U"}


def test_a_topic_of_rejected_rows_that_was_made_again_begins_anew() -> None:
    log = a_log()
    log["a"].alter(add={"colour": str})
    again(log)
    log.delete_topic("a.rejected")
    log["a"].append([{"id": 9, "shape": "x"}, {"id": 8, "shape": "y"}], rejected="keep")
    assert counted(log) == (4, 2, 0)
    log["a"].alter(add={"shape": str})

    assert told(again(log)) == (2, 0, 0)
    assert ids(log)[-2:] == [9, 8]


def test_somebody_s_own_topic_is_not_taken_for_the_one_of_redriven_rows() -> None:
    log = a_log()
    log.topic("a.redriven", SCHEMA)

    with pytest.raises(InvalidRequest, match="rename yours"):
        again(log)


# What was kept as text ----------------------------------------------------------------------------


def test_what_was_kept_as_text_is_read_back_by_the_column_s_type() -> None:
    log = World().log()
    schema = pa.schema(
        [
            pa.field("blob", pa.binary()),
            pa.field("uid", pa.binary(16)),
            pa.field("half", pa.float64()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("money", pa.decimal128(10, 2)),
            pa.field("day", pa.date32()),
            pa.field("blobs", pa.list_(pa.binary())),
            pa.field("pair", pa.struct([pa.field("b", pa.binary()), pa.field("n", pa.int64())])),
            pa.field("name", pa.string()),
        ]
    )
    log.topic("a", schema)
    uid = uuid.UUID(int=7)
    row = {
        "blob": b"\x00\xff", "uid": uid, "half": float("-inf"), "at": datetime(2026, 1, 1, tzinfo=UTC),
        "money": Decimal("1.50"), "day": date(2026, 5, 1), "blobs": [b"a", None], "pair": {"b": b"z", "n": 3},
        "name": uid, "new": np.int64(1),
    }  # fmt: skip
    other = {"uid": bytes(range(16)), "half": float("nan"), "new": 2}
    log["a"].append([row, other], rejected="keep")
    log["a"].alter(add={"new": int})

    assert told(again(log)) == (2, 0, 0)
    found = log["a"].read().to_pylist()
    assert found[0] == {**row, "uid": uid.bytes, "name": str(uid)}
    assert found[1]["uid"] == bytes(range(16)) and str(found[1]["half"]) == "nan"


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (b"abc", pa.string()),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.string()),
        (object(), pa.string()),
        (Decimal("1.5"), pa.string()),
        ([b"x"], pa.list_(pa.string())),
        ({"s": b"x"}, pa.struct([pa.field("s", pa.string())])),
        ({1: "x"}, pa.map_(pa.string(), pa.string())),
        ("text", pa.binary()),
        (Decimal(1234), pa.binary()),
        (Decimal(20260101), pa.date32()),
        (datetime(2026, 1, 1, tzinfo=UTC).date(), pa.timestamp("us")),
        ({"s": "x", "b": b"x"}, pa.struct([pa.field("s", pa.string()), pa.field("b", pa.binary())])),
        ({1, 2}, pa.list_(pa.int64())),
        (datetime(2026, 1, 1, tzinfo=UTC).time(), pa.string()),
        ({1: 2}, pa.map_(pa.int64(), pa.int64())),
        ({"t": b"x"}, pa.struct([pa.field("s", pa.string())])),
        (datetime(2026, 1, 1, tzinfo=UTC), pa.float64()),
    ],
)
def test_what_was_no_text_does_not_become_text_by_being_kept(value: object, type_: pa.DataType) -> None:
    log = World().log()
    log.topic("a", SCHEMA)
    log["a"].append([{"id": 1, "new": value}], rejected="keep")
    log["a"].alter(add={"new": type_})

    assert told(again(log)) == (0, 1, 0)


def test_what_is_no_row_stays_rejected() -> None:
    log = World().log()
    log.topic("a", SCHEMA)
    log["a"].append([{"id": 1}, 7, b"x"], rejected="keep")

    assert told(again(log)) == (0, 2, 0)


def test_a_reason_that_quotes_the_words_is_not_misread() -> None:
    log = World().log()
    log.topic("a", SCHEMA)
    log["a"].append([{"id": "; kept as text: 5", "new": 1}, {"id": "; kept as text: ["}], rejected="keep")

    assert told(again(log)) == (0, 2, 0)


# Corrected ----------------------------------------------------------------------------------------


def test_corrected_rows_are_appended_once_in_place_of_what_was_rejected() -> None:
    log = a_log()
    corrected = [
        {"_hw_partition": 0, "_hw_offset": 0, "id": 40, "note": "was too large"},
        {"_hw_partition": 0, "_hw_offset": 1, "id": "three"},
    ]

    assert again(log, corrected=corrected[1:]).left == 2
    done = again(log, corrected=corrected)
    assert told(done) == (1, 1, 0) and done.left == 1
    assert done.refused == [(0, 1, "id: 'three' is not an int32")]
    corrected[1]["id"] = 3
    assert told(again(log, corrected=corrected)) == (1, 0, 1)
    log["a"].alter(add={"colour": str}, widen={"id": pa.int64()})
    assert told(again(log)) == (0, 0, 2)

    assert ids(log) == [1, 2, 4, 40, 3]
    assert log["a.redriven"].read(columns="corrected").to_arrow()["corrected"].to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"id": 1}, "names the rejected one"),
        ({"_hw_partition": 0, "_hw_offset": "x", "id": 1}, "names the rejected one"),
        ({"_hw_partition": 0, "_hw_offset": 2, "id": 1}, "no row at this place"),
        ({"_hw_partition": 1, "_hw_offset": 0, "id": 1}, "no row at this place"),
        ({"_hw_partition": 0, "_hw_offset": 0, "id": 1}, "named twice"),
    ],
)
def test_a_corrected_row_that_names_no_rejected_one_is_refused(row: dict[str, object], why: str) -> None:
    log = a_log()

    with pytest.raises(InvalidRequest, match=why):
        again(log, corrected=[{"_hw_partition": 0, "_hw_offset": 0, "id": 1}, row])
    assert ids(log) == [1, 2, 4]


# Once ---------------------------------------------------------------------------------------------


def test_a_crash_at_any_write_leaves_each_row_appended_once_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_ROWS_MAX", 2)
    for lost_after in range(8):
        world = World()
        log = world.log()
        log.topic("a", SCHEMA)
        log["a"].append([{"id": number, "new": 1} for number in range(7)], rejected="keep")
        log["a"].alter(add={"new": int})
        engine = engine_of(log)
        commit = engine.commit_transaction
        calls: list[int] = []

        def dies(
            *args: Any, _commit: Any = commit, _calls: Any = calls, _after: int = lost_after, **options: Any
        ) -> Any:
            """Half of the time the write is durable and nobody is told."""
            _calls.append(1)
            if len(_calls) == _after // 2 + 1:
                if _after % 2:
                    _commit(*args, **options)
                raise OutcomeUnknown("the machine is gone")
            return _commit(*args, **options)

        monkeypatch.setattr(engine, "commit_transaction", dies)
        with pytest.raises(OutcomeUnknown):
            again(log)
        log.close()

        log = world.kill().log()
        done = again(log)

        assert done.fitted + done.already_taken == 7
        assert ids(log) == list(range(7))
        log.close()


def test_two_that_redrive_at_the_same_time_append_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log()
    log["a"].alter(add={"colour": str}, widen={"id": pa.int64()})
    engine = engine_of(log)
    prepare = engine.prepare_rows
    others: list[Redriven] = []

    def meanwhile(*args: Any, **options: Any) -> Any:
        if not others:
            others.append(Redriven(""))
            others.append(again(log))
        return prepare(*args, **options)

    monkeypatch.setattr(engine, "prepare_rows", meanwhile)

    assert told(again(log)) == (0, 0, 2)
    assert told(others[1]) == (2, 0, 0)
    assert sorted(ids(log)) == [1, 2, 3, 4, 1 << 40]


def test_more_rows_than_a_write_holds_take_several() -> None:
    world = World(settings=with_log(write_body_bytes_max=8_192))
    log = world.log()
    log.topic("a", SCHEMA)
    for number in range(20):
        log["a"].append({"id": number, "note": "x" * 1_000, "new": 1}, rejected="keep")
    log["a"].alter(add={"new": int})

    done = again(log)

    assert done.fitted == 20 and done.writes > 2
    assert ids(log) == list(range(20))


def test_one_row_that_no_write_holds_is_told() -> None:
    world = World()
    log = world.log()
    log.topic("a", SCHEMA)
    log["a"].append({"id": 0, "note": "x" * 3_000, "new": 1}, rejected="keep")
    log["a"].alter(add={"new": int})
    log.close()
    smaller = World(files=world.files, clock=world.clock, settings=with_log(write_body_bytes_max=2_048))

    with pytest.raises(TooLarge):
        again(smaller.log())


def test_a_transaction_is_refused_where_a_partition_has_gone_on() -> None:
    log = a_log()
    engine = engine_of(log)
    rows = engine.prepare_rows("a", [{"id": 5}]).rows

    with pytest.raises(OffsetMismatch):
        engine.commit_transaction(rows, groups=(), sources=(), identity=None, expected={rows[0].key: 1})
    assert ids(log) == [1, 2, 4]
