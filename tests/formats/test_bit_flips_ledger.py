"""No changed bit of a ledger goes unnoticed: neither by the frames' own rules, nor by whoever asks what has landed.

The golden segments hold every record; each of their bits is flipped, and the frame at the place is read again as
test_bit_flips.py does it for the log.  Then a ledger as a lander writes it, mark and index beside it, is changed at
random places of its segment, and is read: it halts.

HEADWATER_BIT_SEED   the seed of the random changes, by default the test's own.  A seed is the whole repro.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import asdict

import pytest

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind, salt_crc
from headwater.lake.ledger import DIRECTORY, Ledger
from headwater.lake.ledger_records import LedgerRecord, unpack_ledger_record
from headwater.storage.simulated import SimulatedFiles
from tests.formats.make_v1_ledger import CHECKS, WRITES, Writes, built
from tests.formats.segments import Neighbour, walk
from tests.formats.test_bit_flips import Place, due_report, header_of, report_of_change

CHANGES = 1500


def places_of(data: bytes) -> tuple[list[Place], int]:
    """The frames of a segment with what each one's neighbour says of it, and the segment's salt."""
    found = walk(data)
    assert found.segment is not None
    assert (found.end_at, found.why) == (len(data), "END")
    before = Neighbour(found.segment.first_lsn - 1, found.segment_chain, found.segment.epoch)
    places = [Place(0, found.frames[0].at, before)]
    for frame in found.frames:
        places.append(Place(frame.at, frame.size, before))
        before = before.after(frame)
    return places, salt_crc(found.segment.salt)


def golden_records(*ledgers: Writes) -> list[LedgerRecord]:
    frames = [frame for writes in ledgers for frame in walk(bytes(built(writes).data)).frames]
    return [unpack_ledger_record(bytes(frame.body)) for frame in frames if frame.header.kind == Kind.LEDGER]


def test_the_golden_segments_hold_every_record() -> None:
    assert {type(record) for record in golden_records(WRITES, CHECKS)} == set(LedgerRecord.__args__)


@pytest.mark.parametrize("writes", [WRITES, CHECKS], ids=["records", "checks"])
def test_every_flipped_bit_of_a_ledgers_segment_is_noticed_and_said_by_its_name(writes: Writes) -> None:
    data = bytes(built(writes).data)
    places, salted = places_of(data)
    changed = bytearray(data)
    view = memoryview(changed)
    tally: Counter[str] = Counter()
    wrong: list[tuple[int, int, str]] = []

    for place in places:
        header = header_of(view, place, salted)
        for at in range(place.at, place.at + place.size):
            due = due_report(header, at - place.at)
            for bit in range(8):
                changed[at] ^= 1 << bit
                report = report_of_change(view, place, salted)
                changed[at] ^= 1 << bit
                tally[report] += 1
                if report not in due:
                    wrong.append((at, bit, report))

    assert wrong == []
    assert sum(tally.values()) == len(data) * 8
    assert changed == data


def written() -> SimulatedFiles:
    """The golden records, as a lander would have written them."""
    files = SimulatedFiles(remember_calls=False)
    ledger = Ledger(files, clock=ManualClock(), entropy=random.Random(1).randbytes)
    for record in golden_records(WRITES, CHECKS):
        ledger.record([record])
    return files


def said(files: SimulatedFiles) -> dict[str, object]:
    return asdict(Ledger(files, clock=ManualClock(), entropy=random.Random(2).randbytes).state())


@pytest.mark.timeout(120)
def test_a_ledger_with_a_changed_bit_halts_whoever_reads_it(seed: int) -> None:
    files = written()
    (segment,) = (name for name in files.list(DIRECTORY) if name.endswith(".seg"))
    path = f"{DIRECTORY}/{segment}"
    file = files.open(path, writable=True)
    size = file.size()
    due = said(files)
    draw = random.Random(int(os.environ.get("HEADWATER_BIT_SEED", seed)))
    tally: Counter[str] = Counter()
    unnoticed: list[tuple[int, int, bool]] = []

    for _ in range(CHANGES):
        at, bit = draw.randrange(size), 1 << draw.randrange(8)
        whole = file.read_at(at, 1)
        file.write_at(at, bytes([whole[0] ^ bit]))
        try:
            found = said(files)
        except HeadwaterError as error:
            tally[type(error).__name__] += 1
        else:
            unnoticed.append((at, bit, found == due))
        file.write_at(at, whole)

    file.close()
    print(dict(tally))
    assert unnoticed == []
    assert said(files) == due
