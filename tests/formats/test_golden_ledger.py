"""The golden ledgers are read, by two readers, as the facts beside it say.

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
from tests.formats.make_v1_ledger import CHECKS, TABLE, TOPIC_ID, WRITES
from tests.formats.make_v1_ledger import DIRECTORY as GOLDEN
from tests.formats.test_golden_journal import unpack_msgpack

NAME, LATER = "records.ledger", "checks.ledger"
of_each = pytest.mark.parametrize("name", [NAME, LATER])


def golden(name: str = NAME) -> bytes:
    return (GOLDEN / name).read_bytes()


def facts(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return read


def frames(name: str = NAME) -> list[Frame]:
    return [frame for frame in read_segment(golden(name)).frames if frame.fields["kind"] == KINDS["LEDGER"]]


def records(name: str = NAME) -> list[LedgerRecord]:
    return [unpack_ledger_record(frame.body) for frame in frames(name)]


# The file -------------------------------------------------------------------------------------------------------------


@of_each
def test_the_golden_files_of_the_ledger_are_there_and_have_not_changed(name: str) -> None:
    made = {file.name for file in make_v1_ledger.golden_files()}

    assert {path.name for path in GOLDEN.iterdir()} == made | {f"{each}.json" for each in made}
    told = facts(name)
    assert (len(golden(name)), hashlib.sha256(golden(name)).hexdigest()) == (told["size_bytes"], told["sha256"])


def test_a_golden_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"as it was")

    made = make_v1_ledger.main(tmp_path)

    assert (tmp_path / NAME).read_bytes() == b"as it was"
    assert {path.name for path in made} == {f"{NAME}.json", LATER, f"{LATER}.json"}


# The records ----------------------------------------------------------------------------------------------------------


def test_headwater_reads_every_golden_record_and_writes_it_again() -> None:
    found = [*records(), *records(LATER)]

    assert {type(record) for record in found} == set(LedgerRecord.__args__)
    assert [pack_ledger_record(record) for record in records(LATER)] == [frame.body for frame in frames(LATER)]
    assert [unpack_ledger_record(pack_ledger_record(record)) for record in records()] == records()


def test_a_landing_of_before_does_not_say_its_offsets_and_is_read_all_the_same() -> None:
    before = [record for record in records() if isinstance(record, Landed)]
    later = [record for record in records(LATER) if isinstance(record, Landed)]

    assert [record.offsets for record in before] == [(), ()]
    assert [record.offsets for record in later] == [((0, 2, 70_001),)]


def test_the_later_golden_records_fold_to_what_they_say() -> None:
    state = LedgerState()
    for record in records(LATER):
        state.apply(record)

    topic = state.topic(TOPIC_ID)

    assert (topic.landed_lsn, topic.verified_lsn, topic.erasures) == ((1 << 32) + 8, (1 << 32) - 1, 1)
    assert topic.audited is None and topic.last_audit is not None and topic.last_audit.differences == 3


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


@of_each
def test_a_reader_written_from_the_documents_reads_every_golden_record_as_its_facts_say(name: str) -> None:
    segment = read_segment(golden(name))

    found = [
        {"lsn": frame.fields["lsn"], "at": frame.at, "body": readable(unpack_msgpack(frame.body))}
        for frame in frames(name)
    ]

    assert segment.why == "END"
    assert found == facts(name)["records"]


@pytest.mark.parametrize(("name", "writes"), [(NAME, WRITES), (LATER, CHECKS)])
def test_the_records_that_belong_together_are_one_write(name: str, writes: list[list[dict[str, Any]]]) -> None:
    found = [(frame.fields["write_index"], frame.fields["write_count"]) for frame in frames(name)]

    assert found == [(number, len(write)) for write in writes for number in range(len(write))]


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
