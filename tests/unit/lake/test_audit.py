"""The audit as it goes: what it reads, what it lets pass, what it records and what it says where it cannot look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import AuditFailed, Unavailable
from headwater.ids import Lsn
from headwater.lake import audit_measure
from headwater.lake.audit_measure import Asked, LocalMeasure, Looks
from headwater.lake.audit_report import LostFile, Offsets, PartitionAudit, TopicAudit, offsets_of
from headwater.lake.ledger_records import Audited, Decided, Landed
from headwater.lake.view_source import EngineViewSource
from headwater.lake.work import Column, Digest
from headwater.settings import LandingSettings
from tests.unit.lake.audited_lakes import AuditedLake, audited_lakes, ranges, with_value, without
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.ledger_entries import erased
from tests.unit.lake.small_lakes import PLAIN, of_kind, raising
from tests.unit.lake.test_audit_damage import alter_ledger, erase, named
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[AuditedLake]:
    for lake in audited_lakes(tmp_path):
        lake.orders(partitions=2)
        yield lake


class Counting(LocalMeasure):
    """Tells which LSNs were read."""

    def __init__(self) -> None:
        super().__init__(Looks().at)
        self.asked: list[Asked] = []

    def digest(self, asked: Asked) -> Digest:
        self.asked.append(asked)
        return super().digest(asked)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [each for asked in self.asked for each in asked.ranges]


# What it reads -------------------------------------------------------------------------------------------------------


def test_a_topic_that_has_not_landed_owes_nothing(lake: AuditedLake) -> None:
    told = lake.audit()

    assert told.passed and (told.rows, told.owed, told.lsn_to) == (0, 0, 0) and lake.told() == []


def test_the_second_audit_reads_nothing_and_the_third_what_has_landed_since(lake: AuditedLake) -> None:
    lake.land(5, 3)
    first, second, third = Counting(), Counting(), Counting()

    assert lake.audit(full=False, measure=first).full, "nothing was audited before"
    assert not lake.audit(full=False, measure=second).full
    lake.land(2)
    told = lake.audit(full=False, measure=third)

    marks = [each.lsn_to for each in of_kind(lake, Landed)]
    assert first.ranges == [(0, marks[1])] and second.ranges == [] and third.ranges == [(marks[1], marks[2])]
    assert (told.rows, told.checked, told.full) == (10, 2, False)
    assert lake.audit(full=True, measure=(every := Counting())).checked == 10 and len(every.ranges) == 1


def test_after_a_foreign_commit_only_what_it_touched_is_read(lake: AuditedLake) -> None:
    lake.land(5, 3, 2)
    assert lake.audit().passed
    second = of_kind(lake, Landed)[1]

    # The owner writes one landing anew: its file goes, another comes.
    with lake.native() as table:
        rows = lake.rows().filter(pa.compute.equal(lake.rows()["_hw_lsn"], second.lsn_to))
        table.overwrite(rows, overwrite_filter=f"_hw_lsn == {second.lsn_to}")
    told = lake.audit(full=False, measure=(measure := Counting()))

    assert told.passed and measure.ranges == [(second.lsn_from, second.lsn_to)] and told.checked == 3


def test_a_delete_file_touches_the_landings_of_its_data_file(lake: AuditedLake) -> None:
    lake.land(5, 3)
    assert lake.audit().passed
    with lake.native() as table:
        add_delete_file(table)

    told = lake.audit(full=False)

    assert len(told.missing) == 1 and told.differences == 1 and told.rows == 7


def test_a_delete_file_that_is_lost_is_named(lake: AuditedLake) -> None:
    lake.land(5)
    with lake.native() as table:
        deletes = add_delete_file(table)
    Path(deletes.removeprefix("file://")).unlink()

    told = lake.audit()

    assert [each.path for each in told.lost_files] == [deletes] and ranges(told.missing) == {0: ((0, 4),)}


def test_where_the_audited_snapshot_is_gone_all_is_read(lake: AuditedLake) -> None:
    lake.land(5)
    assert lake.audit().passed
    lake.compact()
    lake.expire_all_but_head()

    assert lake.audit(full=False).full
    assert not lake.audit(full=False).full


def test_an_audit_that_failed_is_no_ground_for_the_next(lake: AuditedLake) -> None:
    lake.land(5)
    assert lake.audit().passed
    lake.change(without(1))

    assert not lake.audit(full=False).passed
    assert not lake.audit(full=False).passed, "what differed is read again"


def test_a_seam_measures_and_where_a_file_is_lost_it_is_not_asked(lake: AuditedLake) -> None:
    lake.land(5)
    lake.files()[0].unlink()

    told = lake.audit(measure=(measure := Counting()))

    assert measure.asked == [] and ranges(told.missing) == {0: ((0, 4),)}


def test_rows_in_many_blocks_are_named(lake: AuditedLake) -> None:
    lake.log["orders"].append(pa.table({"x": list(range(70_000))}), partition=0)
    lake.land(1)

    lake.change(without(3, 65_535, 65_536, 69_999))

    assert ranges(lake.audit().missing) == {0: ((3, 3), (65_535, 65_536), (69_999, 69_999))}


def test_a_landing_says_which_offsets_its_rows_have_whatever_works_it_was_made_of(lake: AuditedLake) -> None:
    for partition in (1, 0, 1):
        lake.fill(3, partition=partition)
    lake.round(settings=LandingSettings(commit_threads=1, item_bytes=512))
    lake.fill(2, partition=1)
    lake.round()

    assert [each.offsets for each in of_kind(lake, Landed)] == [((0, 0, 2), (1, 0, 5)), ((1, 6, 7),)]


def test_later_rows_in_the_same_file_that_an_older_type_could_not_hold_are_no_trouble(lake: AuditedLake) -> None:
    """A compaction puts rows of all eras into one file."""
    lake.topic("narrow", pa.schema([pa.field("n", pa.int32()), pa.field("d", pa.decimal128(4, 2))]))
    lake.log["narrow"].append([{"n": 7, "d": Decimal("1.50")}])
    lake.round("narrow")
    lake.log["narrow"].alter(widen={"n": pa.int64(), "d": pa.decimal128(30, 2)})
    lake.log["narrow"].append([{"n": 1 << 40, "d": Decimal("123456789.25")}])
    lake.round("narrow")
    lake.compact("narrow")
    for forgetful in (False, True):
        lake.forgetful = forgetful
        assert lake.report("narrow", full=True).passed

    # What never fitted did not land so.
    lake.forgetful = False
    lake.change(with_value("d", 0, Decimal("123456789.25")), "narrow")
    assert ranges(lake.report("narrow", full=True)["narrow"].altered) == {0: ((0, 0),)}


# What it lets pass ---------------------------------------------------------------------------------------------------


def test_rows_that_were_in_the_table_before_the_topic_are_not_its_own(lake: AuditedLake) -> None:
    with lake.place.connect().catalog as catalog:
        catalog.create_namespace_if_not_exists("lake")
        catalog.create_table("lake.plain", PLAIN).append(pa.table({"x": [7, 8]}, schema=PLAIN))
    lake.topic("plain", PLAIN)
    lake.log["plain"].append([{"x": 1}, {"x": 2}, {"x": 3}])
    lake.round("plain")

    told = lake.report("plain", full=True)["plain"]

    assert told.passed and (told.rows, told.owed, told.unmarked) == (3, 3, 2)


def test_a_row_without_an_lsn_in_a_table_that_a_landing_made_is_told(lake: AuditedLake) -> None:
    lake.land(3)
    with lake.native() as table, table.update_schema(allow_incompatible_changes=True) as update:
        for name in ("_hw_shard", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"):
            update.make_column_optional(name)
    with lake.native() as table:
        table.append(pa.table({"x": pa.array([1], pa.int64())}))

    told = lake.audit()

    assert told.findings == ("1 rows have no LSN, in a table that a landing made",) and told.unmarked == 1


def test_a_column_that_the_owner_dropped_is_told_and_offsets_are_still_compared(lake: AuditedLake) -> None:
    lake.land(5)
    lake.forgetful = True
    with lake.native() as table, table.update_schema() as update:
        update.delete_column("name")

    told = lake.audit()
    assert told.passed and told.dropped_columns == ("name",)
    assert lake.audit(full=False).dropped_columns == ("name",), "also where nothing is read"

    lake.compact()
    lake.change(with_value("x", 3, 99))
    assert lake.audit().passed, "without the log nobody can tell"
    lake.forgetful = False
    assert ranges(lake.audit().altered) == {0: ((3, 3),)}, "the log can, in the columns that are left"
    lake.change(without(2))
    lake.forgetful = True
    assert ranges(lake.audit().missing) == {0: ((2, 2),)}


def test_a_dropped_column_of_a_landing_that_was_found_is_told(lake: AuditedLake) -> None:
    lake.land(5)
    forget_blocks(lake)
    lake.forgetful = True
    with lake.native() as table, table.update_schema() as update:
        update.delete_column("name")

    told = lake.audit()
    assert told.passed and told.dropped_columns == ("name",)

    lake.change(without(2))
    assert lake.audit().findings == ("4 of 5 rows after lsn 0 and up to lsn 3 are there",)


def forget_blocks(lake: AuditedLake, number: int = 0) -> None:
    """As if the landing had been found in its table."""
    alter_ledger(
        lake,
        lambda landed: msgspec.structs.replace(
            landed,
            digest=None,
            adopted=True,
            offsets=(),
            columns=tuple(msgspec.structs.replace(each, name="", type="") for each in landed.columns),
        ),
        number,
    )


def test_an_erasure_that_is_not_finished_is_told_whether_its_row_is_gone_or_not(lake: AuditedLake) -> None:
    lake.land(5)
    rows = lake.rows()
    erase(lake, rows, 2, done=())

    before = lake.audit()
    lake.change(without(2))
    after = lake.audit()

    assert before.passed and after.passed and (before.erased, after.erased) == (0, 1)
    assert before.notes == after.notes == ("the erasure e0 is not finished: run it again",)


def test_a_landing_that_nobody_wrote_down_is_owed_by_its_mark(lake: AuditedLake) -> None:
    """The lander died after its commit, and nobody has landed since."""
    lake.land(5, 3)
    second = of_kind(lake, Landed)[1]
    lake.rewrite_ledger(lambda record: record != second)

    told = lake.audit()
    assert told.passed and (told.owed, told.rows) == (8, 8)

    lake.change(with_value("x", 6, 77))
    assert ranges(lake.audit().altered) == {0: ((6, 6),)}
    lake.forgetful = True
    assert lake.audit().offsets("altered_blocks"), "without the log nobody knows its offsets"


def test_a_landing_that_was_found_and_is_gone_without_a_trace_is_told(lake: AuditedLake) -> None:
    lake.land(5, 3)
    forget_blocks(lake, 1)
    lake.forgetful = True
    last = of_kind(lake, Landed)[1]
    lake.change(lambda rows: rows.filter(pa.compute.not_equal(rows["_hw_lsn"], last.lsn_to)))

    [gone] = lake.audit().findings
    assert gone == f"0 of 3 rows after lsn {last.lsn_from} and up to lsn {last.lsn_to} are there"


def test_a_log_that_says_something_else_than_a_landing_that_was_found_is_told(lake: AuditedLake) -> None:
    """Its total in the ledger was altered: table and log agree, and the mark too."""
    lake.land(5)
    forget_blocks(lake)
    alter_ledger(lake, lambda landed: msgspec.structs.replace(landed, total="1" * 16), 0)

    told = lake.audit()

    assert named(told) == {} and any(each.startswith("ledger: what it says of partition 0") for each in told.findings)


def test_a_log_that_was_written_otherwise_is_told_as_the_logs(lake: AuditedLake) -> None:
    """Rows of the log, under checksums that hold, are others than landed: table and ledger agree."""
    lake.land(5)

    class Elsewhere(EngineViewSource):
        """The same offsets and LSNs, on shard 5: every row has another word."""

        @property
        def shard(self) -> int:
            return 5

    told = lake.audit(source=Elsewhere(engine_of(lake.log), str(lake.folder)))

    assert named(told) == {}
    [of_the_log] = told.findings
    assert of_the_log == "log: its rows of partition 0, offsets 0..65535 are not those that landed: 0..4"


def test_where_the_table_cannot_tell_how_far_it_has_come_its_rows_are_compared_all_the_same(lake: AuditedLake) -> None:
    """What a person needs to know who has to say --landed-lsn."""
    lake.land(5)
    lake.compact()
    with lake.native() as table, table.transaction() as change:
        change.remove_properties("headwater.landed.main")
    lake.expire_all_but_head()

    told = lake.audit()

    assert (told.cause, told.passed, told.rows, told.owed) == ("mark-unproven", False, 5, 5)
    assert named(told) == {} and told.findings == ()


def test_rows_that_are_there_by_a_persons_word_are_told_as_such(lake: AuditedLake) -> None:
    lake.land(5, 3)
    lake.compact()
    lake.expire_all_but_head()
    first, second = of_kind(lake, Landed)
    lake.rewrite_ledger(lambda record: record != second)
    word = Decided(
        topic_id=first.topic_id,
        table=first.table,
        act="landed-lsn",
        lsn=second.lsn_to,
        lsn_before=first.lsn_to,
        at_us=7,
    )
    lake.ledger.record([word])

    told = lake.audit()

    assert told.passed and (told.rows, told.owed) == (8, 5)
    assert told.notes == (
        f"rows after lsn {first.lsn_to} and up to lsn {second.lsn_to} are there by a person's word (--landed-lsn)",
    )


def test_a_mark_that_cannot_be_read_is_told(lake: AuditedLake) -> None:
    lake.land(5)
    with lake.native() as table:
        table.append(lake.rows().slice(0, 0), snapshot_properties={"headwater.commit-id": "c"})

    told = lake.audit()

    assert told.cause == "mark-unproven" and told.findings[0].startswith("history: a landing's mark lacks")


def test_a_mark_without_a_digest_is_told(lake: AuditedLake) -> None:
    lake.land(5)
    head = lake.state().head()
    assert head is not None
    with lake.native() as table:
        wrong = {**{key: each for key, each in head.summary.items() if key.startswith("headwater.")}}
        table.append(lake.rows().slice(0, 0), snapshot_properties={**wrong, "headwater.digest": "none"})

    assert lake.audit().findings[0].startswith("history: the mark of a landing has no digest")


def test_a_stamp_is_a_landing_of_nothing(lake: AuditedLake) -> None:
    lake.land(5)
    head = lake.state().head()
    assert head is not None
    mark = {key: each for key, each in head.summary.items() if key.startswith("headwater.")}
    stamp = {"headwater.rows": "0", "headwater.lsn-from": mark["headwater.lsn-to"], "headwater.commit-id": "s"}
    with lake.native() as table:
        table.append(lake.rows().slice(0, 0), snapshot_properties={**mark, **stamp})

    assert lake.audit().passed


def test_a_landing_of_columns_that_no_schema_knows_is_counted(lake: AuditedLake) -> None:
    lake.land(5)
    forget_blocks(lake)
    alter_ledger(lake, lambda landed: msgspec.structs.replace(landed, columns=(Column(999, "", ""),)), 0)

    assert lake.audit().passed
    lake.forgetful = True
    assert lake.audit().passed
    lake.change(without(1))
    assert lake.audit().findings == ("4 of 5 rows after lsn 0 and up to lsn 3 are there",)


def test_a_measure_that_says_what_was_there_before_does_not_hide_a_row_that_is_gone(lake: AuditedLake) -> None:
    lake.land(5)
    before = lake.state().branches["main"]

    class Old(LocalMeasure):
        def digest(self, asked: Asked) -> Digest:
            return super().digest(replace(asked, snapshot_id=before))

    lake.change(without(1))

    assert lake.audit(measure=Old(Looks().at)).findings == ("it holds 4 rows, and owes 5",)


def test_an_erasure_of_no_rows_that_is_not_finished_is_nothing(lake: AuditedLake) -> None:
    lake.land(5)
    topic_id = lake.record("orders").topic_id.hex()
    lake.ledger.record([msgspec.structs.replace(erased(3, rows=0), topic_id=topic_id)])

    assert lake.audit().passed


def break_log(lake: AuditedLake, place: int) -> None:
    """A byte of the frame with this row is another."""
    lsn = Lsn(lake.rows()["_hw_lsn"][place].as_py())
    placed = engine_of(lake.log).shard.log.device.placed(lsn)
    found = placed.index.place_of(lsn)
    assert found is not None
    segment = lake.folder / "log" / placed.name
    content = bytearray(segment.read_bytes())
    content[found.position + 128 + 20] ^= 1
    segment.write_bytes(bytes(content))


def test_a_log_that_is_damaged_is_told_once_and_the_ledger_is_asked(lake: AuditedLake) -> None:
    lake.land(5)
    lake.log["orders"].alter(add={"note": pa.string()})
    lake.land(3)
    break_log(lake, 0)

    [broken] = lake.audit().findings

    assert broken.startswith("log: ") and "cannot be read" in broken


def test_rows_of_the_log_that_cannot_be_read_are_told(lake: AuditedLake) -> None:
    """Where the index alone says how many there are, it is found by who reads them."""
    lake.land(5)
    break_log(lake, 0)

    [broken] = lake.audit().findings
    assert broken.startswith("log: rows of the log cannot be read")
    forget_blocks(lake)
    assert lake.audit().findings[0].startswith("log: rows of the log cannot be read")


def test_what_is_wrong_is_told_in_lines() -> None:
    partition = PartitionAudit(
        0, 3, "0" * 16, extra=Offsets(1, ((7, 7),)), doubled=Offsets(1, ((2, 2),)), altered_blocks=Offsets(8, ((0, 7),))
    )
    told = TopicAudit("a", "t", partitions=(partition,), lost_files=(LostFile("f", 3, 4, 9),))

    assert list(told.told()) == [
        "lost: f, 3 rows, lsn 5..9",
        "partition 0: extra: offset 7",
        "partition 0: doubled: offset 2",
        "partition 0: altered: a row among offsets 0..7",
    ]
    assert ranges(told.extra) == {0: ((7, 7),)} and ranges(told.doubled) == {0: ((2, 2),)}


def test_another_topics_table_is_halted(lake: AuditedLake) -> None:
    lake.land(5)
    lake.log.delete_topic("orders", force=True)
    lake.orders()

    assert lake.audit().cause == "foreign-mark"


# Where it cannot look ------------------------------------------------------------------------------------------------


def test_one_topics_trouble_does_not_stop_the_others_and_is_no_pass(lake: AuditedLake) -> None:
    lake.land(5)
    lake.topic("other")
    lake.append("other", 2)
    lake.round("other")
    lake.before["load"] = raising(Unavailable("the catalog is away"))

    report = lake.report("orders", "other", full=True)

    assert [topic.passed for topic in report] == [False, True] and not report.passed
    assert report["orders"].cause == "unavailable" and report.unavailable == (report["orders"],)
    assert report.halted == () and "the catalog is away" in str(report)


def test_files_that_cannot_be_looked_for_are_no_pass(lake: AuditedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land(5)

    class Away:
        def new_input(self, path: str) -> None:
            raise OSError("no route to the store")

    monkeypatch.setattr(audit_measure.SnapshotLook, "table", property(lambda look: type("T", (), {"io": Away()})()))

    told = lake.audit()

    assert told.cause == "unavailable" and "no route to the store" in told.message


# What it records and says --------------------------------------------------------------------------------------------


def test_an_audit_is_recorded_whether_it_passed_or_not(lake: AuditedLake) -> None:
    lake.land(5)
    lake.audit()
    lake.change(without(1))
    lake.audit()

    first, second = of_kind(lake, Audited)
    assert (first.passed, first.rows, first.full, first.differences) == (True, 5, True, 0)
    assert (second.passed, second.rows, second.differences) == (False, 4, 1)
    assert lake.known().audited == first and lake.known().last_audit == second


def test_rows_that_were_sent_are_accepted_or_rejected(lake: AuditedLake) -> None:
    lake.land(5)

    told = lake.audit(counted=lambda topic: (5, 3, 1))

    assert (told.accepted, told.rejected, told.redriven, told.sent) == (5, 3, 1, 7)


def test_a_report_is_a_value_text_json_and_html(lake: AuditedLake) -> None:
    lake.land(5)
    passed = lake.report(full=True)
    lake.change(without(1, 3))
    failed = lake.report()

    assert passed.passed and passed.failed == () and failed.failed == (failed["orders"],)
    assert str(passed) == f"PASS orders: 5 of 5 rows in lake.orders, lsn {passed['orders'].lsn_to}, full\nPASS"
    assert str(failed).splitlines()[1:] == ["  partition 0: missing: offset 1, 3", "FAIL"]
    passed.raise_for_status()
    with pytest.raises(AuditFailed, match=r"1 of 1 topics did not pass: FAIL orders.*missing: offset 1, 3"):
        failed.raise_for_status()
    plain = json.loads(json.dumps(failed.to_json()))
    assert plain["passed"] is False and plain["topics"][0]["partitions"][0]["missing"]["ranges"] == [[1, 1], [3, 3]]
    assert plain["topics"][0]["differences"] == 2 and isinstance(plain["topics"][0]["snapshot"], str)
    assert "<td>FAIL</td><td>orders</td>" in failed._repr_html_()


def test_offsets_are_told_as_ranges_the_first_of_them() -> None:
    assert str(offsets_of([(4, 5), (0, 3), (9, 9)])) == "0..5, 9"
    many = offsets_of((place, place) for place in range(0, 1_000, 2))
    assert (many.count, len(many.ranges)) == (500, 100)
    assert str(many) == "0, 2, 4, 6, 8 and more, 500 in all"
    assert not Offsets()


def test_the_audit_of_an_open_log(tmp_path: Path) -> None:
    with hw.open(tmp_path / "nothing") as log:
        assert log.audit().passed and log.audit().topics == ()
