"""The crash model itself: each promise of files.py's table under a power loss, and each fault.

Where a promise says "may", the test shows that it does happen; where it says "stays", that no crash
state breaks it.  NOT HERE what shows without a power loss: tests/contract/test_files.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest

from headwater.storage.files import LockHeld
from headwater.storage.power_loss import SECTOR_SIZE_BYTES
from headwater.storage.simulated import Choice, SimulatedFile, SimulatedFiles

SECTOR = SECTOR_SIZE_BYTES
ZEROES = bytes(SECTOR)
CRASHES = 400


def filled(*letters: bytes) -> bytes:
    """One sector of each letter."""
    return b"".join(letter * SECTOR for letter in letters)


def make(files: SimulatedFiles, name: str, data: bytes = b"") -> SimulatedFile:
    """A file whose name and bytes are on disk."""
    file = files.create(name)
    file.append([data])
    file.sync_data()
    files.sync_directory(name.rpartition("/")[0])
    return file


def crashes(files: SimulatedFiles, seed: int = 0, count: int = CRASHES) -> Iterator[SimulatedFiles]:
    random = Random(seed)
    for _ in range(count):
        yield files.crash(random)


def contents(files: SimulatedFiles, name: str) -> bytes | None:
    return files.contents(name) if name in files.list("") else None


def outcomes(files: SimulatedFiles, name: str = "a") -> set[bytes | None]:
    """Everything that this file turns out to be in many crashes."""
    return {contents(after, name) for after in crashes(files)}


def tree(files: SimulatedFiles) -> dict[str, bytes]:
    return {name: files.contents(name) for name in files.list("")}


# --------------------------------------------------------------------------------------- append, write_at


def test_every_sector_of_an_unsynced_append_may_be_old_new_zero_or_garbage_by_itself() -> None:
    files = SimulatedFiles()
    make(files, "a", filled(b"1"))
    files.open("a", writable=True).append([filled(b"2", b"3")])

    seen = outcomes(files)

    assert {
        filled(b"1"),
        filled(b"1", b"2", b"3"),
        filled(b"1", b"2") + ZEROES,
        filled(b"1") + ZEROES + filled(b"3"),
        filled(b"1") + ZEROES + ZEROES,
        filled(b"1", b"2"),
        filled(b"1") + ZEROES,
    } <= seen
    strange = [data for data in seen if data is not None and data[SECTOR : 2 * SECTOR].strip(b"\x002")]
    assert len(strange) > 20, "garbage is new each time"
    assert {data[:SECTOR] for data in seen if data is not None} == {filled(b"1")}


def test_half_a_sector_may_be_new() -> None:
    files = SimulatedFiles()
    make(files, "a", filled(b"1"))
    files.open("a", writable=True).write_at(0, filled(b"2"))

    assert b"2" * 256 + b"1" * 256 in outcomes(files)


def test_an_unsynced_write_in_place_may_be_lost_in_part_and_never_changes_the_size() -> None:
    files = SimulatedFiles()
    make(files, "a", filled(b"1", b"2"))
    files.open("a", writable=True).write_at(SECTOR - 10, b"x" * 20)

    seen = outcomes(files)

    changed = filled(b"1")[:-10] + b"x" * 20 + filled(b"2")[10:]
    assert {filled(b"1", b"2"), changed, changed[:SECTOR] + filled(b"2")} <= seen
    assert {len(data) for data in seen if data is not None} == {2 * SECTOR}


def test_synced_bytes_stay_though_a_later_write_to_their_sector_is_torn() -> None:
    files = SimulatedFiles()
    file = make(files, "a", b"s" * 700)
    file.append([b"u" * 100])
    file.write_at(600, b"w" * 8)

    seen = outcomes(files)

    assert len(seen) > 20
    for data in seen:
        assert data is not None
        assert data[:600] + data[608:700] == b"s" * 692


def test_bytes_that_are_on_disk_and_are_written_again_unchanged_stay() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))

    file.write_at(0, filled(b"1", b"2"))

    assert outcomes(files) == {filled(b"1", b"2")}


def test_a_size_may_be_kept_at_any_sector_on_its_way() -> None:
    files = SimulatedFiles()
    make(files, "a", b"s" * 100).append([b"u" * 2_000])

    sizes = {len(data) for data in outcomes(files) if data is not None}

    assert sizes == {100, 512, 1_024, 1_536, 2_048, 2_100}


# -------------------------------------------------------------------------------------------------- syncs


@pytest.mark.parametrize("sync", [SimulatedFile.sync_data, SimulatedFile.sync_all])
def test_what_a_sync_covered_stays(sync: Callable[[SimulatedFile], None]) -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1"))
    file.append([filled(b"2")[:300]])
    file.write_at(10, b"in place")

    sync(file)

    assert outcomes(files) == {files.contents("a")}
    assert files.contents_on_disk("a") == files.contents("a")


def test_a_sync_covers_what_other_handles_wrote() -> None:
    files = SimulatedFiles()
    make(files, "a").append([b"abc"])

    files.open("a").sync_data()

    assert outcomes(files) == {b"abc"}


def test_a_sync_of_the_data_does_not_keep_the_name() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    file.append([b"abc"])
    file.sync_all()

    assert outcomes(files) == {None, b"abc"}
    assert files.contents_on_disk("a") is None


def test_a_sync_of_the_directory_does_not_keep_the_data() -> None:
    files = SimulatedFiles()
    files.create("a").append([b"abc"])
    files.sync_directory("")

    seen = outcomes(files)

    assert {b"", b"abc", bytes(3)} <= seen
    assert None not in seen


@pytest.mark.parametrize("looked_at", [False, True])
def test_a_failed_sync_drops_bytes_and_a_second_one_succeeds_and_lies(looked_at: bool) -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1"))
    file.append([filled(b"2", b"3")])
    files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync_data()
    if looked_at:
        files.crash(Random(0))
    file.sync_data()

    assert caught.value.errno == errno.EIO
    assert files.contents("a") == filled(b"1", b"2", b"3")
    assert files.restart().contents("a") == filled(b"1", b"2", b"3")
    assert outcomes(files) == {filled(b"1") + ZEROES + ZEROES}


def test_dropped_bytes_are_still_lost_after_a_restart_unless_they_are_written_again() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1"))
    file.append([filled(b"2", b"3")])
    files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OSError, match="Input/output"):
        file.sync_data()

    restarted = files.restart()
    again = restarted.open("a", writable=True)
    again.sync_data()
    lied_to = outcomes(restarted)
    again.write_at(2 * SECTOR, again.read_at(2 * SECTOR, SECTOR))
    again.sync_data()
    mended = outcomes(restarted)

    assert lied_to == {filled(b"1") + ZEROES + ZEROES}
    assert mended == {filled(b"1") + ZEROES + filled(b"3")}


def test_a_failed_sync_leaves_the_old_bytes_of_a_write_in_place() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))
    file.write_at(0, filled(b"x"))
    files.fail(1, errno.EIO, verbs=["sync_all"])

    with pytest.raises(OSError, match="Input/output"):
        file.sync_all()
    file.write_at(SECTOR, filled(b"y"))
    file.sync_all()

    assert outcomes(files) == {filled(b"1", b"y")}


# ----------------------------------------------------------------------------------------------- truncate


def test_a_cut_may_be_undone_until_a_sync() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))

    file.truncate(100)
    unsynced = outcomes(files)
    file.sync_data()
    synced = outcomes(files)

    assert unsynced == {filled(b"1", b"2"), b"1" * 100}
    assert synced == {b"1" * 100}


def test_after_an_unsynced_cut_the_old_bytes_may_stand_where_new_ones_were_appended() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))
    file.truncate(SECTOR)
    file.append([filled(b"3")])

    assert {filled(b"1", b"2"), filled(b"1", b"3"), filled(b"1")} <= outcomes(files)


def test_a_hole_behind_a_cut_is_synced_as_zeroes() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2", b"3"))
    file.truncate(100)
    file.write_at(2 * SECTOR + 5, b"x")

    file.sync_data()

    assert outcomes(files) == {b"1" * 100 + bytes(2 * SECTOR - 95) + b"x"}


# ------------------------------------------------------------------------------------------------- ghosts


def test_bytes_that_were_cut_off_and_synced_away_may_show_again_where_the_file_grows_anew() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))
    file.truncate(700)
    file.sync_data()
    file.append([b"n" * 324])

    seen = outcomes(files)

    assert filled(b"1", b"2") in seen
    assert {data[:700] for data in seen if data is not None} == {filled(b"1", b"2")[:700]}


def test_a_ghost_ends_with_the_sync_of_what_replaces_it() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))
    file.truncate(SECTOR)
    file.append([b"n" * 10])
    file.sync_data()
    file.append([b"m" * 502])

    ghosts = [data for data in outcomes(files) if data is not None and b"2" * 16 in data]

    assert not ghosts


def test_bytes_behind_two_cuts_may_show_again() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1"))
    file.truncate(400)
    file.truncate(200)
    file.sync_data()
    file.append([b"n" * 312])

    assert filled(b"1") in outcomes(files)


@pytest.mark.parametrize("size", [SECTOR, 100], ids=["at a sector", "inside a sector"])
def test_data_that_arrived_without_its_size_may_show_when_the_file_grows_again(size: int) -> None:
    files = SimulatedFiles()
    make(files, "a", b"1" * size).append([b"2" * 400])

    ghosts = 0
    for after in crashes(files):
        if after.contents("a") == b"1" * size:
            after.open("a", writable=True).append([b"3" * 400])
            ghosts += any(again.contents("a") == b"1" * size + b"2" * 400 for again in crashes(after, count=40))

    assert ghosts > 5


def test_a_ghost_ends_with_a_power_loss_that_puts_other_bytes_in_its_place() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2"))
    file.truncate(SECTOR)
    file.append([filled(b"3")])

    after = files.crash(Random(0), choice=Choice.EVERYTHING)
    after.open("a", writable=True).write_at(SECTOR, filled(b"4"))

    assert not [data for data in outcomes(after) if data is not None and b"2" * 16 in data]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_new_file_may_show_what_a_removed_or_replaced_one_held(replaced: bool) -> None:
    files = SimulatedFiles()
    make(files, "other", b"other")
    make(files, "old", filled(b"1", b"2"))
    if replaced:
        files.rename("other", "old")
    else:
        files.unlink("old")
    file = files.create("new")
    files.sync_directory("")
    file.append([filled(b"3", b"4")])

    assert filled(b"3", b"2") in outcomes(files, "new")


def test_a_new_file_may_show_what_a_file_held_whose_name_was_lost() -> None:
    files = SimulatedFiles()
    lost = files.create("a")
    lost.append([filled(b"1")])
    lost.sync_data()

    after = files.crash(Random(0), choice=Choice.NOTHING)
    after.create("a").append([filled(b"2")])

    assert filled(b"1") in outcomes(after)


# -------------------------------------------------------------------------------------------------- names


def test_pending_names_are_kept_or_lost_each_by_itself() -> None:
    files = SimulatedFiles()
    make(files, "removed", b"r")
    files.create("made")
    files.create("made too")
    files.unlink("removed")

    seen = {tuple(after.list("")) for after in crashes(files)}
    files.sync_directory("")
    synced = {tuple(after.list("")) for after in crashes(files)}

    assert len(seen) == 8
    assert synced == {("made", "made too")}


def test_a_rename_shows_the_old_or_the_new_name_and_never_neither_or_both() -> None:
    files = SimulatedFiles()
    make(files, "old", b"new bytes")
    make(files, "name", b"old bytes")

    files.rename("old", "name")
    seen = [tree(after) for after in crashes(files)]
    files.sync_directory("")
    synced = [tree(after) for after in crashes(files)]

    before, renamed = {"old": b"new bytes", "name": b"old bytes"}, {"name": b"new bytes"}
    assert before in seen
    assert renamed in seen
    assert all(names in (before, renamed) for names in seen)
    assert all(names == renamed for names in synced)


def test_a_file_that_was_renamed_twice_has_one_name_whatever_is_lost() -> None:
    files = SimulatedFiles()
    make(files, "1", b"bytes")
    files.rename("1", "2")
    files.rename("2", "3")

    seen = {tuple(after.list("")) for after in crashes(files)}

    assert seen == {("1",), ("2",), ("3",)}


def test_a_removed_file_comes_back_with_its_bytes_until_the_directory_is_synced() -> None:
    files = SimulatedFiles()
    make(files, "a", b"bytes")

    files.unlink("a")
    unsynced = outcomes(files)
    files.sync_directory("")
    synced = outcomes(files)

    assert unsynced == {None, b"bytes"}
    assert synced == {None}


def test_a_name_that_was_made_anew_is_the_old_file_the_new_one_or_none() -> None:
    files = SimulatedFiles()
    make(files, "a", b"old")
    files.unlink("a")
    new = files.create("a")
    new.append([b"new"])
    new.sync_data()

    assert outcomes(files) == {None, b"old", b"new"}


def test_syncing_one_directory_keeps_no_name_of_another() -> None:
    files = SimulatedFiles()
    files.make_directory("d")
    files.create("d/a")
    files.create("b")

    files.sync_directory("d")
    after = files.crash(Random(0), choice=Choice.NOTHING)

    assert after.list("d") == ["a"]
    assert after.list("") == ["d"]


def test_a_directory_stays_from_the_moment_it_is_made() -> None:
    files = SimulatedFiles()
    files.make_directory("x/y")

    after = files.crash(Random(0), choice=Choice.NOTHING)

    assert after.list("x") == ["y"]
    after.create("x/y/a")


def test_an_allocated_file_has_no_size_or_all_of_it_and_only_zeroes() -> None:
    files = SimulatedFiles()
    files.allocate("a", 1_000)
    files.sync_directory("")

    seen = outcomes(files)

    assert {b"", bytes(1_000)} <= seen
    assert all(data is not None and not data.strip(b"\x00") for data in seen)


def test_locks_die_with_the_process() -> None:
    files = SimulatedFiles()
    files.lock("lock", "before")

    for after in (files.crash(Random(0)), files.restart()):
        after.lock("lock", "after")
        with pytest.raises(LockHeld, match="after"):
            after.lock("lock", "another")

    with pytest.raises(LockHeld, match="before"):
        files.lock("lock", "another")


def test_whatever_the_calls_were_synced_bytes_stay_and_the_extremes_hold(seed: int) -> None:
    random = Random(seed)
    for _ in range(60):
        files = SimulatedFiles()
        file = make(files, "a")
        model, synced, touched = bytearray(), b"", set[int]()
        for _ in range(random.randrange(1, 25)):
            data = random.randbytes(random.choice([1, 64, 700]))
            verb = random.choice(["append", "append", "write_at", "truncate", "sync", "failed sync", "crash"])
            if verb == "append":
                model[file.append([data]) :] = data
            elif verb == "write_at":
                at = random.randrange(len(model) + 100)
                file.write_at(at, data)
                touched.update(range(min(at, len(model)), at + len(data)))
                model.extend(bytes(max(0, at - len(model))))
                model[at : at + len(data)] = data
            elif verb == "truncate":
                size = random.randrange(len(model) + 1)
                file.truncate(size)
                touched.update(range(size, len(synced)))
                del model[size:]
            elif verb == "sync" and not files.calls.count(("failed", "a")):
                file.sync_data()
                synced, touched = bytes(model), set()
            elif verb == "failed sync" and random.random() < 0.1:
                files.fail(1, errno.EIO, verbs=["sync_data"])
                with pytest.raises(OSError, match="Input/output"):
                    file.sync_data()
                files.calls.append(("failed", "a"))
            else:
                files.crash(random)

        for after in (*crashes(files, random.randrange(1000), 10), files.crash(random, choice=Choice.NOTHING)):
            left = after.contents("a")
            assert len(left) >= min(touched | {len(synced)})
            assert [at for at in range(len(synced)) if at not in touched and left[at] != synced[at]] == []
        assert files.contents("a") == files.restart().contents("a") == model
        if ("failed", "a") not in files.calls:
            assert files.crash(random, choice=Choice.EVERYTHING).contents("a") == model


# ------------------------------------------------------------------------------------ the instances apart


def busy(seed: int = 0) -> SimulatedFiles:
    """Files with something of every kind pending."""
    files = SimulatedFiles(seed)
    a = make(files, "a", filled(b"1", b"2", b"3"))
    make(files, "b", b"b" * 100)
    make(files, "c", b"c" * 100)
    a.truncate(2 * SECTOR + 10)
    a.append([filled(b"4")])
    files.create("d").append([b"d" * 700])
    files.rename("d", "b")
    files.unlink("c")
    return files


def test_a_crash_leaves_the_original_untouched() -> None:
    files = busy()
    before, pending, calls = tree(files), files.pending(), list(files.calls)

    for after in crashes(files, count=50):
        for name in after.list(""):
            file = after.open(name, writable=True)
            file.write_at(0, b"changed")
            file.append([b"changed"])
            file.sync_data()
            after.unlink(name)
        after.sync_directory("")

    assert tree(files) == before
    assert files.pending() == pending
    assert files.calls[: len(calls)] == calls
    assert files.crash(Random(0), choice=Choice.NOTHING).contents("a") == filled(b"1", b"2", b"3")


def test_the_original_changes_nothing_in_what_came_from_it() -> None:
    files = busy()
    crashed, restarted = files.crash(Random(1)), files.restart()
    before = tree(crashed), tree(restarted), restarted.pending()

    a = files.open("a", writable=True)
    a.write_at(0, b"changed")
    a.sync_data()
    files.unlink("b")
    files.sync_directory("")

    assert (tree(crashed), tree(restarted), restarted.pending()) == before


def test_a_restart_reads_everything_and_a_power_loss_after_it_loses_as_much() -> None:
    files = busy()

    restarted = files.restart()

    assert tree(restarted) == tree(files)
    assert restarted.pending() == files.pending()
    originals = [tree(after) for after in crashes(files, count=50)]
    assert [tree(after) for after in crashes(restarted, count=50)] == originals


def test_after_a_power_loss_nothing_is_pending_until_something_new_is() -> None:
    for after in crashes(busy(), count=50):
        assert after.pending() == ()
        assert tree(after.crash(Random(0))) == tree(after)
        after.create("later")
        assert "later" not in after.crash(Random(0), choice=Choice.NOTHING).list("")


def test_the_same_seed_gives_the_same_states_and_another_gives_others() -> None:
    first = [tree(after) for after in crashes(busy(), seed=1)]
    again = [tree(after) for after in crashes(busy(), seed=1)]
    other = [tree(after) for after in crashes(busy(), seed=2)]

    assert first == again
    assert first != other


def test_the_extremes_keep_nothing_and_everything() -> None:
    files = busy()

    nothing = files.crash(Random(0), choice=Choice.NOTHING)
    everything = files.crash(Random(0), choice=Choice.EVERYTHING)

    assert tree(nothing) == {"a": filled(b"1", b"2", b"3"), "b": b"b" * 100, "c": b"c" * 100}
    assert tree(everything) == tree(files)


# ------------------------------------------------------------------------------------------- crash_states


def test_crash_states_begin_with_the_extremes_and_never_repeat() -> None:
    files = busy()

    states = [tree(after) for after in files.crash_states(Random(0), 500)]

    assert len(states) == 500
    assert states[0] == tree(files.crash(Random(0), choice=Choice.NOTHING))
    assert states[1] == tree(files)
    assert len({tuple(sorted(state.items())) for state in states}) == 500


def test_crash_states_lose_and_keep_each_sector_alone() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(*[b"o"] * 20))
    file.write_at(0, filled(*[b"n"] * 20))

    changed = [after.contents("a")[::SECTOR] for after in islice(files.crash_states(Random(0), 250), 125)]

    for sector in range(20):
        assert bytes(b"on"[at == sector] for at in range(20)) in changed
        assert bytes(b"on"[at != sector] for at in range(20)) in changed


def test_crash_states_lose_and_keep_each_name_alone() -> None:
    files = SimulatedFiles()
    for name in "abcdefgh":
        files.create(name)

    states = ["".join(after.list("")) for after in islice(files.crash_states(Random(0), 100), 18)]

    assert sorted(states) == sorted(
        ["", "abcdefgh", *"abcdefgh", *("abcdefgh".replace(name, "") for name in "abcdefgh")]
    )


def test_crash_states_hold_every_subset_of_a_few_sectors() -> None:
    files = SimulatedFiles()
    file = make(files, "a", filled(b"1", b"2", b"3", b"4"))
    file.write_at(0, filled(b"a", b"b", b"c", b"d"))

    states = {after.contents("a")[::SECTOR] for after in islice(files.crash_states(Random(0), 200), 40)}

    wanted = {bytes([w, x, y, z]) for w in b"1a" for x in b"2b" for y in b"3c" for z in b"4d"}
    assert wanted <= states


def test_crash_states_of_quiet_files_are_one() -> None:
    files = SimulatedFiles()
    make(files, "a", b"abc")

    assert [tree(after) for after in files.crash_states(Random(0), 100)] == [{"a": b"abc"}]


def test_crash_states_end_when_there_are_no_more() -> None:
    files = SimulatedFiles()
    make(files, "a", b"abc")
    files.unlink("a")

    assert [tree(after) for after in files.crash_states(Random(0), 100)] == [{"a": b"abc"}, {}]


def test_crash_states_leave_room_for_mixes_where_much_is_pending() -> None:
    files = SimulatedFiles()
    make(files, "a", bytes(200 * SECTOR)).write_at(0, filled(*[b"n"] * 200))

    kept = [after.contents("a")[::SECTOR].count(b"n") for after in files.crash_states(Random(0), 40)]

    assert len(kept) == 40
    assert sum(10 < count < 190 for count in kept) >= 15


# ------------------------------------------------------------------------------------------------- faults


def test_the_nth_call_fails_once() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.fail(2, errno.ENOSPC)

    file.append([b"one"])
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"two"])
    file.append([b"three"])

    assert caught.value.errno == errno.ENOSPC
    assert files.contents("a") == b"onethree"


def test_a_fault_may_last_for_ever_and_ends_when_it_is_healed() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.fail(2, errno.EIO, for_ever=True, verbs=["append"])

    file.append([b"one"])
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            file.append([b"two"])
    file.write_at(0, b"ONE")
    files.heal()
    file.append([b"three"])

    assert files.contents("a") == b"ONEthree"


def test_a_fault_counts_only_its_verbs() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.fail(2, errno.EIO, verbs=["sync_data", "sync_directory"])

    file.sync_data()
    file.append([b"x"])
    file.sync_all()
    with pytest.raises(OSError, match="Input/output"):
        files.sync_directory("")


def test_two_faults_count_apart() -> None:
    files = SimulatedFiles()
    file = files.create("a")
    files.fail(1, errno.EIO, verbs=["append"])
    files.fail(2, errno.ENOSPC, verbs=["append"])

    with pytest.raises(OSError, match="Input/output"):
        file.append([b"x"])
    with pytest.raises(OSError, match="No space"):
        file.append([b"x"])
    file.append([b"x"])


def test_the_call_before_the_next_cannot_fail() -> None:
    with pytest.raises(ValueError, match="call 1"):
        SimulatedFiles().fail(0, errno.EIO)


def test_a_short_write_leaves_a_first_part_that_the_seed_decides() -> None:
    def short(seed: int, verb: str) -> bytes:
        files = SimulatedFiles(seed)
        file = make(files, "a", b"begin ")
        files.fail(1, errno.ENOSPC, verbs=[verb], short=True)
        with pytest.raises(OSError, match="No space"):
            file.append([b"01234", b"56789"]) if verb == "append" else file.write_at(6, b"0123456789")
        left = files.contents("a")
        assert file.append([b"next"]) == 6
        return left

    for verb in ("append", "write_at"):
        seen = {short(seed, verb) for seed in range(200)}
        assert seen == {b"begin " + b"0123456789"[:size] for size in range(11)}
        assert short(7, verb) == short(7, verb)


def all_verbs(files: SimulatedFiles) -> None:
    files.make_directory("d")
    lock = files.lock("d/lock", "me")
    file = files.create("d/a")
    file.append([b"abc"])
    file.write_at(0, b"x")
    file.sync_data()
    file.sync_all()
    file.truncate(2)
    file.size()
    files.allocate("d/b", 10)
    files.rename("d/b", "d/c")
    files.unlink("d/c")
    files.sync_directory("d")
    files.list("d")
    reader = files.open("d/a")
    reader.read_at(0, 1)
    reader.read_into(0, memoryview(bytearray(1)))
    lock.release()


CALLS = [
    ("make_directory", "d"), ("lock", "d/lock"), ("create", "d/a"), ("append", "d/a"), ("write_at", "d/a"),
    ("sync_data", "d/a"), ("sync_all", "d/a"), ("truncate", "d/a"), ("size", "d/a"), ("allocate", "d/b"),
    ("rename", "d/b"), ("unlink", "d/c"), ("sync_directory", "d"), ("list", "d"), ("open", "d/a"),
    ("read_at", "d/a"), ("read_into", "d/a"),
]  # fmt: skip


def test_calls_are_noted_so_that_each_can_be_made_to_fail() -> None:
    counting = SimulatedFiles()
    all_verbs(counting)
    assert counting.calls == CALLS

    for number in range(1, len(CALLS) + 1):
        files = SimulatedFiles()
        files.fail(number, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            all_verbs(files)
        assert files.calls == CALLS[:number]


@pytest.mark.parametrize("verb", ["create", "append", "write_at", "truncate", "rename", "unlink", "allocate", "lock"])
def test_a_verb_that_fails_changes_nothing(verb: str) -> None:
    files = SimulatedFiles()
    file = make(files, "a", b"abc")
    before = tree(files)
    files.fail(1, errno.EIO, verbs=[verb])

    verbs: dict[str, Callable[[], object]] = {
        "create": lambda: files.create("b"),
        "append": lambda: file.append([b"x"]),
        "write_at": lambda: file.write_at(0, b"x"),
        "truncate": lambda: file.truncate(1),
        "rename": lambda: files.rename("a", "b"),
        "unlink": lambda: files.unlink("a"),
        "allocate": lambda: files.allocate("b", 10),
        "lock": lambda: files.lock("b", "me"),
    }

    with pytest.raises(OSError, match="Input/output"):
        verbs[verb]()

    assert tree(files) == before
    assert files.pending() == ()


def test_a_directory_sync_that_fails_leaves_its_names_pending() -> None:
    files = SimulatedFiles()
    files.create("a")
    files.fail(1, errno.EIO)

    with pytest.raises(OSError, match="Input/output"):
        files.sync_directory("")

    assert outcomes(files) == {None, b""}


def test_the_hook_hears_of_each_call_that_changes_or_syncs_before_it_happens() -> None:
    files = SimulatedFiles()
    heard: list[tuple[str, str]] = []
    sizes: list[int] = []

    def hear(verb: str, name: str) -> None:
        heard.append((verb, name))
        sizes.append(sum(len(data) for data in tree_of("d").values()))
        files.crash(Random(0))

    def tree_of(directory: str) -> dict[str, bytes]:
        inside = files.restart()
        return {name: inside.contents(f"{directory}/{name}") for name in inside.list(directory) if name != "lock"}

    files.before_call = hear
    all_verbs(files)

    reads = {"size", "list", "open", "read_at", "read_into"}
    assert heard == [call for call in CALLS if call[0] not in reads]
    assert sizes == [0, 0, 0, 0, 3, 3, 3, 3, 2, 12, 12, 2]


def test_what_the_hook_raises_stands_in_place_of_the_call() -> None:
    class PowerLoss(Exception):
        pass

    files = SimulatedFiles()
    file = files.create("a")

    def stop(verb: str, name: str) -> None:
        raise PowerLoss

    files.before_call = stop
    with pytest.raises(PowerLoss):
        file.append([b"abc"])

    files.before_call = None
    assert files.contents("a") == b""
    assert file.append([b"x"]) == 0


def test_a_full_disk_takes_what_fits_and_has_room_again_when_a_file_is_removed() -> None:
    files = SimulatedFiles()
    files.capacity_bytes = 1_000
    files.allocate("reserve", 600)
    file = files.create("a")

    with pytest.raises(OSError, match="No space"):
        file.append([b"x" * 500])
    partly = files.contents("a")
    with pytest.raises(OSError, match="No space"):
        files.allocate("b", 1)
    files.unlink("reserve")
    file.append([b"y" * 500])

    assert partly == b"x" * 400
    assert files.contents("a") == b"y" * 500
    assert files.list("") == ["a"]
    assert files.crash(Random(0)).capacity_bytes == files.restart().capacity_bytes == 1_000


# ------------------------------------------------------------------------------------------------- damage


def both_views(files: SimulatedFiles, name: str = "a") -> set[bytes | None]:
    return {files.contents(name), files.contents_on_disk(name)}


def test_a_flipped_bit_is_flipped_in_both_views() -> None:
    files = SimulatedFiles()
    file = make(files, "a", b"\x00\x00")
    file.append([b"\x00"])

    files.flip_bit("a", 11)
    files.flip_bit("a", 16)

    assert files.contents("a") == b"\x00\x08\x01"
    assert files.contents_on_disk("a") == b"\x00\x08"


def test_a_flipped_bit_leaves_what_differs_between_the_views() -> None:
    files = SimulatedFiles()
    make(files, "a", b"\x00\x00").write_at(0, b"\xf0\xf0")

    files.flip_bit("a", 0)

    assert files.contents("a") == b"\xf1\xf0"
    assert files.contents_on_disk("a") == b"\x01\x00"


def test_sectors_can_be_swapped_zeroed_and_misdirected() -> None:
    data = filled(b"1", b"2", b"3") + b"4" * 10

    def damaged() -> SimulatedFiles:
        files = SimulatedFiles()
        make(files, "a", data)
        return files

    swapped, swapped_last, zeroed, misdirected = (damaged() for _ in range(4))
    swapped.swap_sectors("a", 0, 2)
    swapped_last.swap_sectors("a", 0, 3)
    zeroed.zero_sector("a", 1)
    misdirected.misdirect("a", 2, 0)

    assert both_views(swapped) == {filled(b"3", b"2", b"1") + b"4" * 10}
    assert both_views(swapped_last) == {(b"4" * 10).ljust(SECTOR, b"\x00") + filled(b"2", b"3") + b"1" * 10}
    assert both_views(zeroed) == {filled(b"1") + ZEROES + filled(b"3") + b"4" * 10}
    assert both_views(misdirected) == {filled(b"3", b"2") + ZEROES + b"4" * 10}


def test_a_file_that_is_put_is_there_with_its_directory_and_synced() -> None:
    files = SimulatedFiles()
    files.put("x/y/a", b"abc")
    files.create("b").append([b"unsynced"])
    files.put("b", b"replaced")

    after = files.crash(Random(0), choice=Choice.NOTHING)

    assert files.pending() == ()
    assert after.contents("x/y/a") == b"abc"
    assert after.contents("b") == files.contents("b") == b"replaced"
