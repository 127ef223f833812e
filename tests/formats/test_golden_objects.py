"""The golden slots, trim and lease are read, by two readers, as the facts beside them say.

The second reader takes frames from the documents and JSON from the library: docs/formats/objects.md says no more.
A golden file is never made again; tests/formats/make_v1_objects.py made them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import CorruptData
from headwater.log.chain import ChainEnd
from headwater.log.log_lease import Lease, pack_lease, read_lease
from headwater.log.manifest import Manifest, pack_manifest, unpack_manifest
from headwater.log.slots import read_slot
from headwater.log.walk import Walk
from tests.formats import make_v1_objects
from tests.formats.independent_decoder import Read, crc32c, hexdump_bytes, read_segment
from tests.formats.make_v1_objects import DIRECTORY as GOLDEN
from tests.formats.make_v1_objects import FIRST, SECOND, WINDOW
from tests.formats.segments import CREATED_US, LOG_ID, SALT, TOKEN

SLOTS = ["fence.slot", "commit.slot", "opening.slot"]
DOCUMENT = "objects.md"


def document_text() -> str:
    return (Path(__file__).parents[2] / "docs" / "formats" / DOCUMENT).read_text(encoding="utf-8")


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def facts(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return told


def merged() -> bytes:
    """The first segment as one object: of every slot but the one that opens it all but its envelope."""
    return golden("fence.slot") + golden("commit.slot")[256:]


def walked() -> Walk:
    walk = Walk(Manifest(LOG_ID, WINDOW), "", {})
    for name in SLOTS:
        walk.add(golden(name))
    return walk


# The files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SLOTS, "trim", "lease"])
def test_the_golden_objects_are_there_and_have_not_changed(name: str) -> None:
    made = {file.name for file in make_v1_objects.golden_files()}

    assert {path.name for path in GOLDEN.iterdir()} == made | {f"{each}.json" for each in made}
    told = facts(name)
    assert (len(golden(name)), hashlib.sha256(golden(name)).hexdigest()) == (told["size_bytes"], told["sha256"])


def test_the_same_objects_would_be_made_today() -> None:
    assert {file.name: file.data for file in make_v1_objects.golden_files()} == {
        name: golden(name) for name in [*SLOTS, "trim", "lease"]
    }


def test_a_golden_object_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    (tmp_path / "trim").write_bytes(b"as it was")

    make_v1_objects.main(tmp_path)

    assert (tmp_path / "trim").read_bytes() == b"as it was"


# Slots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SLOTS)
def test_headwater_reads_every_golden_slot(name: str) -> None:
    told = facts(name)

    slot = read_slot(told["slot"], golden(name))

    assert (slot.header.flags, slot.header.first_lsn, slot.header.epoch) == (
        told["flags"],
        told["first_lsn"],
        told["epoch"],
    )
    assert (slot.opens, slot.is_fence) == (not told["flags"] & 1, bool(told["flags"] & 2))


def test_headwater_walks_over_the_golden_slots() -> None:
    walk = walked()

    assert (walk.next_slot, walk.end.next_lsn, walk.epoch, walk.fence) == (11, 4, 1, None)
    assert [(run.first_lsn, [slot for slot, _ in run.slots], tuple(run.fences)) for run in walk.runs] == [
        (1, [1, 9], (1,)),
        (4, [10], ()),
    ]


def read_all() -> Read:
    return read_segment(merged() + bytes(128))


def test_the_slots_of_a_segment_are_a_segment_to_a_reader_that_knows_nothing_of_slots() -> None:
    read = read_all()

    assert (read.why, read.end_at, read.last_whole_lsn) == ("END", facts("trim")["segment_bytes"], 3)
    assert [frame.fields["lsn"] for frame in read.frames] == facts("fence.slot")["lsns"] + facts("commit.slot")["lsns"]
    assert [frame.body for frame in read.frames[1:]] == [FIRST, SECOND]
    assert read.frames[0].body[8:] == TOKEN


def test_the_envelope_of_a_slot_that_continues_says_where_it_goes_on() -> None:
    envelope = read_segment(golden("commit.slot")[:256]).segment
    opening = read_segment(golden("opening.slot")).segment
    before = read_all().frames

    assert envelope is not None and opening is not None
    assert (envelope["slot"], envelope["lsn"], envelope["prev"]) == (9, 2, before[0].chain)
    assert (envelope["salt"], envelope["previous_first_lsn"], envelope["log_id"]) == (SALT, 1, LOG_ID)
    assert (opening["slot"], opening["lsn"], opening["prev"]) == (10, 4, before[-1].chain)
    assert (opening["previous_first_lsn"], opening["flags"]) == (1, 0)


@pytest.mark.parametrize("name", SLOTS)
def test_every_flipped_bit_of_a_golden_slot_is_noticed(name: str) -> None:
    data = golden(name)
    before = SLOTS[: SLOTS.index(name)]

    for bit in range(0, 8 * len(data), 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        walk = Walk(Manifest(LOG_ID, WINDOW), "", {})
        for each in before:
            walk.add(golden(each))
        with pytest.raises(Exception, match=r"slot|segment|log") as raised:
            walk.add(bytes(changed))
        assert raised.type.__module__ == "headwater.errors"


# trim and lease ----------------------------------------------------------------------------------------------------


def test_headwater_reads_the_golden_trim() -> None:
    trim = unpack_manifest(golden("trim"))
    told = facts("trim")
    walk = walked()

    assert (trim.next, trim.epoch, trim.window, trim.token) == (told["next"], told["epoch"], told["window"], TOKEN)
    (kept,) = trim.segments
    assert (kept.slots, kept.fences, kept.size) == (((1, 512), (9, 896)), (1,), len(merged()))
    assert trim.end == kept.end == walk.runs[0].end == ChainEnd(4, trim.end.chain, 1, CREATED_US + 9)
    assert pack_manifest(trim) == golden("trim")


def test_the_walk_that_the_golden_trim_begins_goes_on_with_the_next_slot() -> None:
    walk = Walk(unpack_manifest(golden("trim")), "", {})

    walk.add(golden("opening.slot"))

    assert (walk.next_slot, walk.end.next_lsn) == (11, 4)


def test_the_golden_trim_is_what_the_document_says() -> None:
    content = json.loads(golden("trim"))
    document = document_text()
    keys = re.findall(r"^\| (`[^|]+`) \|", document.partition("## trim")[2].partition("## lease")[0], re.MULTILINE)

    assert {key for cell in keys for key in re.findall(r"`(\w+)`", cell)} == set(content)
    crc = content.pop("crc")
    assert crc == crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    (segment,) = content["segments"]
    assert base64.b64decode(segment["opening"]) == golden("fence.slot")[:256]
    segment["opening"] = "…"
    shown = json.loads(document.partition("```json\n")[2].partition("```")[0])
    assert shown == {**content, "crc": crc}


def test_every_flipped_bit_of_the_golden_trim_is_noticed() -> None:
    data = golden("trim")

    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptData):
            unpack_manifest(bytes(changed))


def test_headwater_reads_the_golden_lease() -> None:
    told = facts("lease")
    lease = Lease(told["token"], told["host"], told["pid"], told["since_us"], told["counter"])

    assert read_lease(golden("lease")) == lease
    assert pack_lease(lease) == golden("lease")


# The document ------------------------------------------------------------------------------------------------------


def test_the_worked_example_is_the_golden_slot() -> None:
    first, dumped = hexdump_bytes(DOCUMENT, "A worked example")

    assert (first, dumped) == (0, golden("commit.slot")[:384])
    rows = re.findall(r"^\| (0x\w+) \| ([0-9a-f ]+) \|", document_text(), re.MULTILINE)
    assert len(rows) == 10
    for at, shown in rows:
        data = bytes.fromhex(shown)
        assert data == dumped[int(at, 16) :][: len(data)]
