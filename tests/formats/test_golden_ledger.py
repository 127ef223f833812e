"""The golden ledger is read, by two readers, as the facts beside it say.

The second reader is that of test_golden_journal.py: msgpack by a few lines of its own, frames from the documents.
A golden file is never made again; tests/formats/make_v1_ledger.py made it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.errors import CorruptData
from headwater.lake.ledger_records import Landed, LedgerRecord, pack_ledger_record, unpack_ledger_record
from headwater.lake.ledger_state import LedgerState
from tests.formats import make_v1_ledger
from tests.formats.independent_decoder import KINDS, Frame, cells, hexdump_bytes, read_segment
from tests.formats.make_v1_journal import readable
from tests.formats.make_v1_ledger import DIRECTORY as GOLDEN
from tests.formats.make_v1_ledger import TABLE, TOPIC_ID, WRITES
from tests.formats.test_golden_journal import unpack_msgpack

NAME = "records.ledger"


def golden() -> bytes:
    return (GOLDEN / NAME).read_bytes()


def facts() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((GOLDEN / f"{NAME}.json").read_text(encoding="utf-8"))
    return read


def frames() -> list[Frame]:
    return [frame for frame in read_segment(golden()).frames if frame.fields["kind"] == KINDS["LEDGER"]]


def records() -> list[LedgerRecord]:
    return [unpack_ledger_record(frame.body) for frame in frames()]


# The file -------------------------------------------------------------------------------------------------------------


def test_the_golden_file_of_the_ledger_is_there_and_has_not_changed() -> None:
    made = {file.name for file in make_v1_ledger.golden_files()}

    assert {path.name for path in GOLDEN.iterdir()} == made | {f"{name}.json" for name in made}
    assert (len(golden()), hashlib.sha256(golden()).hexdigest()) == (facts()["size_bytes"], facts()["sha256"])


def test_a_golden_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"as it was")

    made = make_v1_ledger.main(tmp_path)

    assert (tmp_path / NAME).read_bytes() == b"as it was"
    assert [path.name for path in made] == [f"{NAME}.json"]


# The records ----------------------------------------------------------------------------------------------------------


def test_headwater_reads_every_golden_record_and_writes_it_again() -> None:
    found = records()

    assert {type(record) for record in found} == set(LedgerRecord.__args__)
    assert [pack_ledger_record(record) for record in found] == [frame.body for frame in frames()]


def test_the_golden_records_fold_to_what_they_say() -> None:
    state = LedgerState()
    for record in records():
        state.apply(record)

    topic = state.topic(TOPIC_ID)

    assert (topic.landed_lsn, topic.verified_lsn, topic.epoch) == (17, 17, 1)
    assert topic.halted is None
    assert topic.merged is not None
    checked = state.checked("headwater")
    assert checked is not None
    assert checked.properties == {"raced": True, "late": True, "re-sent": False}
    assert [each.what for each in state.kept[TABLE]] == ["compacted"]


def test_the_digest_of_a_golden_landing_is_the_sum_of_its_blocks() -> None:
    landed = next(record for record in records() if isinstance(record, Landed))

    assert landed.digest is not None
    assert (landed.digest.rows, str(landed.digest)) == (landed.rows, landed.total)


def test_a_reader_written_from_the_documents_reads_every_golden_record_as_its_facts_say() -> None:
    segment = read_segment(golden())

    found = [
        {"lsn": frame.fields["lsn"], "at": frame.at, "body": readable(unpack_msgpack(frame.body))} for frame in frames()
    ]

    assert segment.why == "END"
    assert found == facts()["records"]


def test_the_records_that_belong_together_are_one_write() -> None:
    found = [(frame.fields["write_index"], frame.fields["write_count"]) for frame in frames()]

    assert found == [(number, len(write)) for write in WRITES for number in range(len(write))]


def test_a_record_of_a_kind_or_with_a_field_that_is_not_known_is_refused() -> None:
    for strange in ({**WRITES[1][0], "is": "doubted"}, {**WRITES[1][0], "more": 1}):
        with pytest.raises(CorruptData):
            unpack_ledger_record(msgspec.msgpack.encode(strange))


# The document ---------------------------------------------------------------------------------------------------------


def test_the_document_names_every_record_and_its_fields() -> None:
    told = {name.strip("`"): fields for name, fields, _ in cells("ledger.md", "The records", 3)}

    for record in LedgerRecord.__args__:
        fields = told.pop(str(record.__struct_config__.tag))
        assert [field.strip(" `") for field in fields.split(",")] == [
            name for name in record.__struct_fields__ if name != "at_us"
        ]
    assert told == {}


def test_the_document_explains_every_field_once() -> None:
    told = [name.strip("`") for name, _, _, _ in cells("ledger.md", "The fields", 4)]

    fields = {name for record in LedgerRecord.__args__ for name in record.__struct_fields__}
    assert sorted(told) == sorted(fields)


def test_the_document_says_which_fields_may_be_left_out() -> None:
    told = {name.strip("`") for name, _, default, _ in cells("ledger.md", "The fields", 4) if default}

    defaults = {
        name
        for record in LedgerRecord.__args__
        for name in record.__struct_fields__[len(record.__struct_fields__) - len(record.__struct_defaults__) :]
        if name != "at_us"
    }
    assert told == defaults


def test_the_hexdump_of_the_worked_example_is_the_golden_file() -> None:
    first, dumped = hexdump_bytes("ledger.md", "A worked example")

    assert dumped == golden()[first : first + len(dumped)]
    assert len(dumped) >= 128
