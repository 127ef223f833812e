"""The log with one rule broken, to show that the simulation would notice: mutants are killed, or the suite is blind.

HOW      A mutant replaces a function of the product in memory while it runs, mostly by editing its source; the
         product itself is never touched.  An edit that no longer fits its function fails loudly (`Stale`).
KILLED   By a seed, if any invariant breaks in that seed's crashes, recoveries or damages.
IN CI    Those with `ci` run until five seeds have killed them; `python -m tests.torture` runs all of them over 500
         seeds and prints how many killed each.

Rules that no mutant here breaks, because another rule holds without them:
    the sync of the old segment at a roll        every commit in it was synced before it was acknowledged
    the sync of the cut, at recovery and before  the mark with the new epoch is durable before anything is appended or
    a refusal                                    refused, so that what was cut is stale when it comes back; the
                                                 refusal is checked with both of them gone (`refuse-early`)
    append times that rise strictly              an attempt that was taken back is followed by a new epoch, so no two
                                                 attempts make the same frame; that they do not fall is checked
    LSN and write number in a chain of frames    `prev` holds the checksums of the frame before, LSN included; they
                                                 decide only in rewritten segments
    the sync of an index file                    a torn index does not match its checksums and is built again; both
                                                 gone is `index-unchecked`
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from headwater.errors import HeadwaterError
from headwater.frames import frame as frames
from headwater.log import (
    chain,
    file_actions,
    file_device,
    file_reads,
    index,
    mark,
    ownership,
    recovery,
    segment,
    segments,
    writer,
)
from headwater.storage.simulated import SimulatedFiles
from tests.simulation.crashes import CrashEngine, Effort
from tests.simulation.damage import damage_log
from tests.simulation.invariants import quiet
from tests.simulation.patches import Patch, patched


class Habitat(Enum):
    """Where a mutant shows most: how the seeds live that hunt it."""

    CRASHES = (Effort(states=0, calls=200, share_of_calls=0.2, share_of_syncs=0.6), 10)
    FAULTS = (Effort(states=0, calls=200, share_of_calls=0.2, share_of_syncs=0.6, fault_share=0.5), 0)
    FULL_DISKS = (
        Effort(states=0, calls=200, share_of_calls=0.05, share_of_syncs=0.9, fault_share=0.5, only_full_disks=True),
        0,
    )
    GHOSTS = (Effort(states=0, calls=240, share_of_calls=0.02, share_of_syncs=0.9), 0)
    DAMAGE = (Effort(states=0, calls=60, share_of_calls=0.05, share_of_syncs=0.15), 100)

    @property
    def effort(self) -> Effort:
        return self.value[0]

    @property
    def damages(self) -> int:
        return self.value[1]


@dataclass(frozen=True)
class Mutant:
    name: str
    what: str
    apply: Callable[[Patch], None]
    ci: bool = False
    habitat: Habitat = Habitat.CRASHES

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def kills(mutant: Mutant, seed: int) -> str | None:
    """What the seed notices while the mutant lives, or nothing."""
    with mutant(), quiet():
        engine = CrashEngine(seed, mutant.habitat.effort)
        try:
            engine.run()
            if mutant.habitat.damages:
                damage_log(engine.workload, Random(f"damage of {seed}"), mutant.habitat.damages)
        except (AssertionError, HeadwaterError, OSError, ValueError, LookupError, TypeError) as error:
            # A mutant may break things in any way: what matters is that somebody notices.
            return f"{type(error).__name__}: {error}"
    return None


MUTANTS: list[Mutant] = []
"""Hunted by seeds."""
DIRECTED: list[Mutant] = []
"""Bring back a bug that seeds meet too rarely: test_bugs_found.py hunts them, each with a life of its own."""


def _mutant(
    name: str, what: str, *, ci: bool = False, habitat: Habitat = Habitat.CRASHES, directed: bool = False
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(apply: Callable[[Patch], None]) -> Callable[[Patch], None]:
        (DIRECTED if directed else MUTANTS).append(Mutant(name, what, apply, ci, habitat))
        return apply

    return add


_DEVICE = file_device.FileDevice
_SYNC = "self._sync(owner.file.sync_data)"

# Syncs ----------------------------------------------------------------------------------------------------


@_mutant("ack-early", "an append is acknowledged before its sync, which comes with the next one", ci=True)
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE, "commit", (_SYNC, "pass"), ("owner = self._owned()", "owner = self._owned(); owner.file.sync_data()")
    )


@_mutant("no-sync", "a commit is never synced", ci=True)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "commit", (_SYNC, "pass"))


@_mutant("no-directory-sync", "no directory is ever synced", ci=True)
def _(patch: Patch) -> None:
    patch.set(SimulatedFiles, "sync_directory", lambda self, directory: None)


@_mutant("roll-without-directory-sync", "a new segment's name is not synced")
def _(patch: Patch) -> None:
    patch.edit(
        file_actions,
        "create_segment",
        (
            "    sync(file.sync_all)\n    sync(lambda: place.files.sync_directory(place.directory))",
            "    sync(file.sync_all)",
        ),
    )


@_mutant("roll-without-header-sync", "a new segment's header is not synced before the mark points to it", ci=True)
def _(patch: Patch) -> None:
    patch.edit(file_actions, "create_segment", ("    sync(file.sync_all)\n", ""))


@_mutant("sync-retried", "a failed sync is called again, and believed", habitat=Habitat.FAULTS, ci=True)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_sync", ("raise self.poison(error) from error", "sync()"))


@_mutant(
    "poison-ignored", "after a failed sync the commit is refused, and the log goes on", habitat=Habitat.FAULTS, ci=True
)
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE, "_sync", ("raise self.poison(error) from error", "raise Unavailable('the sync failed') from error")
    )


@_mutant("no-tail-rewrite", "recovery does not write again what no mark covers", habitat=Habitat.FAULTS, ci=True)
def _(patch: Patch) -> None:
    patch.set(ownership.Claiming, "_write_again", lambda self, file, newest, report: None)


@_mutant("rewrite-without-sync", "recovery writes the tail again and does not sync it", habitat=Habitat.FAULTS)
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_write_again", ("file.sync_all()", "pass"))


@_mutant("rewrite-from-the-header", "recovery takes the header of a segment without a mark for synced")
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_write_again", ("start = 0", "pass"))


# The mark -------------------------------------------------------------------------------------------------


@_mutant("mark-before-sync", "the mark is written before the sync that makes it true", ci=True)
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE,
        "commit",
        (
            _SYNC,
            f"owner.mark.write(durable_lsn=sealed.end.next_lsn - 1, segment=owner.active.first_lsn, position=owner.position + sealed.size); {_SYNC}",
        ),
    )


@_mutant("mark-unsynced-at-claim", "a claim's mark is not synced before its first frame", ci=True)
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_own", ("writer.sync()", "pass"))


@_mutant("mark-not-written-again", "a claim trusts that the mark it has read is on disk", directed=True)
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_own", ("if self._mark is not None:", "if False:"))


@_mutant("reader-in-a-roll", "a reader that comes while a segment is being begun loses the one before it")
def _(patch: Patch) -> None:
    patch.edit(file_reads.FileReads, "_load_for_reading", ("segments[-1].size if segments else 0", "0"))


@_mutant("mark-in-one-slot", "the mark is always written to the same slot")
def _(patch: Patch) -> None:
    patch.edit(mark.MarkWriter, "write", ("SLOT_POSITIONS[mark.counter % 2]", "SLOT_POSITIONS[0]"))


@_mutant("mark-unchecked", "a mark is believed without its checksum", ci=True)
def _(patch: Patch) -> None:
    patch.edit(mark, "unpack_slot", ("magic != MAGIC or crc32c(data[8:]) != crc", "magic != MAGIC"))


@_mutant("older-mark", "the older of the two slots is the mark")
def _(patch: Patch) -> None:
    patch.edit(mark, "read_mark", ("mark.counter > newest.counter", "mark.counter < newest.counter"))


@_mutant("read-beyond-mark", "a reader in another process reads on behind the mark", ci=True)
def _(patch: Patch) -> None:
    def to_the_end(self: Any, segment_: Any, index_: Any, walker: Any, position: int, mark_: Any) -> Any:
        file = segment_.open_file()
        size = file.size()
        scan = segment.Scan(file, position, size, segment_.opening.salted, chunk_bytes=4096)
        for at, header, body in scan:
            if walker.step(header, body) is not None:
                break
            index_.add(header, at, body)
            if walker.whole_end.next_lsn == walker.next_lsn:
                position = at + header.frame_size
        return position, None

    patch.set(file_reads.FileReads, "_extend", to_the_end)


@_mutant("mark-behind-a-roll", "the mark that a roll writes points behind what is durable", ci=True)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_roll", ("self._write_mark(owner, durable)", "self._write_mark(owner, owner.end.next_lsn)"))


@_mutant("shown-before-sync", "the owner shows a write before it is synced")
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE,
        "commit",
        (
            _SYNC,
            f"self._show(View(self._view.segments, Lsn(sealed.end.next_lsn - 1), owner.position + sealed.size)); {_SYNC}",
        ),
    )


# What a frame is checked for ------------------------------------------------------------------------------


@_mutant("no-body-crc", "a body is believed without its checksum", ci=True)
def _(patch: Patch) -> None:
    patch.edit(frames, "check_body", ("if crc32c(data[start:end]) != header.body_crc:", "if False:"))


@_mutant("no-header-crc", "a header is believed without its checksum", ci=True)
def _(patch: Patch) -> None:
    patch.edit(frames, "decode_header", ("!= header_crc:", "!= header_crc and False:"))


@_mutant("no-chain", "a frame need not name the one before it", habitat=Habitat.DAMAGE, ci=True)
def _(patch: Patch) -> None:
    patch.edit(chain.ChainWalker, "step", ("if header.prev != self.chain:", "if False:"))
    patch.edit(
        file_reads.FileReads,
        "_frames_in",
        ("if chain is not None and header.prev != chain:", "if False:"),
        ("and chain != segment.end.chain", "and False"),
    )


@_mutant("no-salt", "every segment has the same salt, and everybody knows it", ci=True)
def _(patch: Patch) -> None:
    patch.everywhere(frames.salt_crc, lambda salt: frames.NO_SALT_CRC)


@_mutant("one-salt", "all segments of a log share their salt")
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_roll", ("salt=self._entropy(8)", "salt=old.opening.header.salt"))


@_mutant(
    "no-epoch",
    "a frame of an earlier life may follow one of a later, and the mark's epoch is no floor",
    habitat=Habitat.GHOSTS,
    ci=True,
)
def _(patch: Patch) -> None:
    patch.edit(
        chain.ChainWalker,
        "step",
        ("if epoch < self.epoch or (lsn > self._floor_after_lsn and epoch < self._floor_epoch):", "if False:"),
    )


@_mutant("no-epoch-floor", "the mark's epoch is no floor for what lies behind it", habitat=Habitat.GHOSTS)
def _(patch: Patch) -> None:
    patch.edit(chain.ChainWalker, "__init__", ("self._floor_epoch = floor_epoch", "self._floor_epoch = 0"))


@_mutant("floor-for-all", "the mark's epoch is a floor for what lies before it, too", ci=True)
def _(patch: Patch) -> None:
    patch.edit(chain.ChainWalker, "__init__", ("self._floor_after_lsn = floor_after_lsn", "self._floor_after_lsn = 0"))


@_mutant("epoch-not-raised", "a claim takes the epoch that was there")
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_continue", ("Epoch(highest + 1)", "Epoch(highest)"))


@_mutant("epoch-from-frames", "a claim raises the highest epoch of a frame, whatever the mark says")
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_continue", ("max(newest.end.epoch, self._mark_epoch)", "newest.end.epoch"))


# Recovery -------------------------------------------------------------------------------------------------


@_mutant(
    "never-halts",
    "recovery cuts at the first bad frame, also below what is known to be durable",
    habitat=Habitat.DAMAGE,
    ci=True,
)
def _(patch: Patch) -> None:
    patch.edit(recovery.Evidence, "acknowledged_is_there", ("self.good_lsn >= self.durable_lsn", "True"))


@_mutant(
    "header-knowledge-ignored",
    "only the mark says what was durable, not the headers behind a break",
    habitat=Habitat.DAMAGE,
    ci=True,
)
def _(patch: Patch) -> None:
    patch.edit(
        recovery,
        "scan_newest",
        ("if found is not Found.WHOLE:", "if False:"),
        ("durable_lsn = max(durable_lsn, header.durable_lsn)\n        # A", "# A"),
    )


@_mutant("no-truncate", "recovery leaves the torn tail where it is", ci=True)
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_continue", ("file.truncate(newest.position)", "pass"))


@_mutant("cut-too-much", "recovery cuts one unit more than is torn")
def _(patch: Patch) -> None:
    patch.edit(
        ownership.Claiming, "_continue", ("file.truncate(newest.position)", "file.truncate(newest.position - 128)")
    )


@_mutant("split-write-visible", "a write counts as whole at each of its frames", ci=True)
def _(patch: Patch) -> None:
    patch.edit(chain.ChainWalker, "step", ("whole = lsn == last", "whole = True"))


@_mutant("stillborn-halts", "a roll that was never finished halts the log", ci=True)
def _(patch: Patch) -> None:
    cases = [
        (name, fits, recovery.Verdict.DAMAGED if verdict is recovery.Verdict.REMOVE else verdict)
        for name, fits, verdict in recovery.CASES
    ]
    patch.set(recovery, "CASES", cases)


@_mutant(
    "headless-is-removed",
    "a newest segment without its header is removed although it was in use",
    habitat=Habitat.DAMAGE,
    ci=True,
)
def _(patch: Patch) -> None:
    def fits(evidence: recovery.Evidence) -> bool:
        return evidence.found is recovery.Found.HEADLESS

    others = [
        case for case in recovery.CASES if case[2] is not recovery.Verdict.REMOVE and case[0] != "a lost segment header"
    ]
    assert len(others) == len(recovery.CASES) - 2
    patch.set(recovery, "CASES", [*others, ("mutant", fits, recovery.Verdict.REMOVE)])
    # The segment before it then ends the log below its mark.
    patch.edit(recovery.Evidence, "acknowledged_is_there", ("self.good_lsn >= self.durable_lsn", "True"))


@_mutant("ghost-header", "the header of a removed file in a new segment's blocks halts the log", directed=True)
def _(patch: Patch) -> None:
    patch.set(segments, "_is_ghost", lambda *given: False)


@_mutant("forged-segment-frame", "a forged SEGMENT frame in a body tells how far the log was durable")
def _(patch: Patch) -> None:
    patch.edit(
        segment,
        "valid_headers_after",
        ("if header is not None and header.kind != Kind.SEGMENT:", "if header is not None:"),
    )


@_mutant("claims-too-much", "a header says that its own frame was durable when it was written", ci=True)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "commit", ("durable_lsn=self._view.durable_lsn", "durable_lsn=owner.end.next_lsn"))


@_mutant("headers-count-as-durable", "recovery takes a valid header for a durable one")
def _(patch: Patch) -> None:
    patch.edit(
        recovery,
        "scan_newest",
        ("durable_lsn = max(durable_lsn, header.durable_lsn)", "durable_lsn = max(durable_lsn, header.lsn)"),
    )


@_mutant("offsets-forgotten-at-recovery", "recovery does not know the offsets of sealed segments", ci=True)
def _(patch: Patch) -> None:
    patch.edit(ownership.Claiming, "_look_at_newest", ("found.offsets_before(Segment(place, name, opening))", "{}"))


# Refusals -------------------------------------------------------------------------------------------------


@_mutant(
    "refuse-early", "a write is refused before its cut and the new epoch are durable", habitat=Habitat.FAULTS, ci=True
)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_take_back", ("owner.file.sync_all()", "pass"))
    patch.edit(mark.MarkWriter, "begin_epoch", ("self.sync()", "pass"))


@_mutant(
    "refuse-in-one-epoch", "after a refusal the log goes on in the same epoch", habitat=Habitat.FULL_DISKS, ci=True
)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_take_back", ("Epoch(owner.claim.epoch + 1)", "Epoch(owner.claim.epoch)"))


@_mutant("no-take-back", "what a failed write left is not cut", habitat=Habitat.FAULTS)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_take_back", ("owner.file.truncate(owner.position)", "pass"))


@_mutant("take-back-unpoisoned", "a refused write whose cut failed does not poison the log", habitat=Habitat.FAULTS)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "_take_back", ("return self.poison(second)", "return Unavailable('the cut failed')"))


@_mutant("full-disk-is-final", "a full disk is refused without taking the write back", habitat=Habitat.FAULTS)
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE,
        "commit",
        (
            "raise self._take_back(owner, error) from error",
            f"raise (Unavailable('full') if error.errno == {errno.ENOSPC} else self._take_back(owner, error)) from error",
        ),
    )


@_mutant("offsets-of-refused", "a refused commit uses up its offsets", habitat=Habitat.FAULTS, ci=True)
def _(patch: Patch) -> None:
    patch.edit(
        writer.Sequencer,
        "take_rows",
        ("self._taken[key] = base + rows", "self._taken[key] = self._committed[key] = base + rows"),
    )


# Segments, indexes, times ---------------------------------------------------------------------------------


@_mutant("offsets-forgotten-at-roll", "offsets begin again in a new segment")
def _(patch: Patch) -> None:
    patch.edit(
        _DEVICE,
        "_roll",
        ("ActiveIndex(header.first_lsn, owner.index.next_offsets())", "ActiveIndex(header.first_lsn, {})"),
    )


@_mutant(
    "index-untied", "an index is believed to belong to the segment whose name it has", habitat=Habitat.FAULTS, ci=True
)
def _(patch: Patch) -> None:
    patch.set(segments.Segment, "_is_mine", lambda self, footer: True)
    patch.edit(
        segments,
        "_read_end",
        ("and footer.segment_bytes == size", ""),
        ("and footer.last_lsn == following.first_lsn - 1", ""),
        ("and (not isinstance(opening, Opening) or footer.chain == opening.header.prev)", ""),
    )


@_mutant("index-unchecked", "an index is neither synced nor checked")
def _(patch: Patch) -> None:
    patch.edit(file_actions, "write_aside", ("file.sync_data()", "pass"))
    patch.edit(index, "read_footer", ("or crc32c(memoryview(data)[8:]) != crc", ""))
    patch.edit(index, "open_sealed", ("if crc == footer.sections_crc", "if True"))
    patch.edit(index, "read_next_offsets", ("or crc32c(data) != footer.partitions_crc", ""))


@_mutant("clock-believed", "append times are the clock's, and fall when it does", ci=True)
def _(patch: Patch) -> None:
    patch.edit(
        writer.Writer,
        "_issue",
        (
            "max(self._clock.now_us(), device.last_append_time_us() + 1, self._attempt_time_us + 1)",
            "self._clock.now_us()",
        ),
    )


@_mutant("receipts-swapped", "two requests of one commit get each other's answer")
def _(patch: Patch) -> None:
    patch.edit(
        writer.Writer,
        "_issue",
        (
            "formed = self._form(requests, sequencer)\n",
            "formed = self._form(requests, sequencer)\n"
            "    if len(formed) > 1:\n"
            "        formed[0].requests, formed[1].requests = formed[1].requests, formed[0].requests\n",
        ),
    )


@_mutant("roll-not-undone", "a segment that could not be begun is left behind", habitat=Habitat.FAULTS)
def _(patch: Patch) -> None:
    patch.edit(file_actions, "create_segment", ("        sync(lambda: place.files.unlink(place.path(name)))\n", ""))


@_mutant("short-write-unnoticed", "a short write is taken for a whole one", habitat=Habitat.FAULTS, ci=True)
def _(patch: Patch) -> None:
    patch.edit(_DEVICE, "commit", ("raise self._take_back(owner, error) from error", "pass"))


@_mutant("clean-for-ever", "every mark says that the log was closed cleanly, and its index need not fit")
def _(patch: Patch) -> None:
    patch.edit(mark, "pack_slot", ("flags = CLEAN if mark.clean else 0", "flags = CLEAN"))
    patch.edit(
        recovery,
        "cleanly_closed",
        ("or footer.last_lsn != mark.durable_lsn", ""),
        ("or not (footer.segment_bytes == mark.position == file.size())", ""),
    )


@_mutant("no-lock-order", "the mark of a claim is written before the tail is cut")
def _(patch: Patch) -> None:
    original = ownership.Claiming._continue

    def early(self: Any, lock: Any, found: Any, newest: Any, report: Any) -> Any:
        file = self._open_mark_for_writing()
        said = mark.Mark(
            self._mark.counter if self._mark else 0,
            found.log_id,
            newest.end.next_lsn - 1,
            newest.index.first_lsn,
            newest.position,
            newest.end.epoch,
        )
        early_mark = mark.MarkWriter(file, said)
        early_mark.write(durable_lsn=said.durable_lsn, segment=said.segment, position=said.position)
        early_mark.sync()
        return original(self, lock, found, newest, report)

    patch.set(ownership.Claiming, "_continue", early)


def by_name(name: str) -> Mutant:
    for mutant in (*MUTANTS, *DIRECTED):
        if mutant.name == name:
            return mutant
    raise KeyError(name)
