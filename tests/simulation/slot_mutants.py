"""The protocol of owners with one rule broken, to show that its schedules would notice: killed, or the suite is blind.

HOW      As in mutants.py: a function is replaced in memory while the mutant lives, mostly by editing its source; an
         edit that no longer fits fails loudly.  Rules that the protocol leaves to its user (which slots are deleted,
         how far trim moves) are broken in the owners of slot_owner.py.
KILLED   By a seed, if its schedule breaks a promise; or by a play that is written down step by step (slot_plays.py).
IN CI    Each runs until five seeds have killed it.

Rules that no mutant here breaks, because another rule holds without them:
    a claim's epoch is above trim's     the fence of whoever wrote trim lies on the walk, or ends below it: the walk has
                                        met its epoch in any case
    its own fence is recognised         a second fence after it is as good; it costs slots
    a claim gives up for a higher one   it would claim again, with a higher epoch: two that never give up fence each
                                        other out for long, and nothing is lost
    its own swap is recognised          after a lost reply it finds its own epoch and token there, and swaps again
    nothing is issued once fenced       what is issued lands on void slots, and is not acknowledged
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import HeadwaterError
from headwater.log import slots, takeover, window
from tests.simulation.patches import Patch, patched
from tests.simulation.slot_owner import Owner
from tests.simulation.slot_plays import a_commit_is_absorbed_and_its_slot_taken
from tests.simulation.slot_schedules import SlotSchedule
from tests.simulation.slot_world import Faults

_PUT = '__import__("tests.simulation.slot_world", fromlist=["Put"]).Put('


@dataclass(frozen=True)
class SlotMutant:
    name: str
    what: str
    apply: Callable[[Patch], None]
    mood: Mapping[str, Any] = field(default_factory=dict)
    play: Callable[[], None] | None = None
    """The play by hand that notices it; none where schedules do."""

    def __call__(self) -> AbstractContextManager[None]:
        return patched(self.apply)


def kills(mutant: SlotMutant, seed: int) -> str | None:
    """What the seed notices while the mutant lives, or nothing."""
    with mutant():
        try:
            if mutant.play is not None:
                mutant.play()
            else:
                SlotSchedule(seed, mood=mutant.mood).run()
        except (AssertionError, HeadwaterError, LookupError, TypeError, ValueError) as error:
            # A mutant may break things in any way: what matters is that somebody notices.
            return f"{type(error).__name__}: {error}"
    return None


MUTANTS: list[SlotMutant] = []


def _edit(name: str, what: str, owner: Any, function: str, *changes: tuple[str, str], **mood: Any) -> None:
    MUTANTS.append(SlotMutant(name, what, lambda patch: patch.edit(owner, function, *changes), mood))


FAULTY = {"faults": Faults(0.05, 0.05, 0.02)}
BUSY = {"claim_share": 0.2, "steps": 300, "slow_share": 0.15, "cut_off_share": 0.5, "rolls": 0.3}

# Those of the protocol's first model ---------------------------------------------------------------------------------

_edit(
    "fences-are-deleted",
    "a fence is deleted with the other slots below trim",
    Owner,
    "_deletable",
    ("if slot not in fences", ""),
    **BUSY,
    **FAULTY,
)
_edit(
    "trim-not-checked-against-the-walk",
    "a claim swaps trim on an etag that was read after its walk",
    takeover,
    "take_over",
    (
        "        epoch = walk.end.epoch\n",
        "        manifest, etag = yield from read_trim(directory)\n        epoch = walk.end.epoch\n",
    ),
    **BUSY,
)
_edit(
    "no-void-slots",
    "the slot after a fence is the next of the history",
    slots,
    "follows",
    ("(window if slot.is_fence else 1)", "1"),
    **FAULTY,
)
_edit(
    "already-exists-believed",
    "a slot that is taken is taken for ours",
    window,
    "write_slot",
    ("held = yield Get(name)", "return True"),
)
_edit(
    "acknowledged-out-of-order",
    "a commit is acknowledged as soon as its own slot is confirmed",
    window.Window,
    "settle",
    ("self._confirmed.add(slot)", "return [self._waiting.pop(slot)]"),
)

# Slots and windows ---------------------------------------------------------------------------------------------------

_edit(
    "one-void-slot-too-few",
    "one slot fewer is void after a fence than may be in flight",
    slots,
    "follows",
    ("(window if", "(max(window - 1, 1) if"),
    **FAULTY,
    **BUSY,
)
_edit(
    "window-counts-the-unconfirmed",
    "as many slots as the window has may be unconfirmed, however far they reach",
    window.Window,
    "has_room",
    ("self._lowest + self._size", "self._lowest + self._size + len(self._confirmed)"),
    **FAULTY,
)
_edit(
    "read-back-unheard-is-ours",
    "a slot that cannot be read back is taken for ours",
    window,
    "write_slot",
    (
        "if isinstance(held, Found):\n                return held.data == data",
        "return not isinstance(held, Found) or held.data == data",
    ),
    **FAULTY,
)
_edit(
    "read-back-unheard-is-foreign",
    "a slot that cannot be read back is taken for another's",
    window,
    "write_slot",
    (
        "if isinstance(held, Found):\n                return held.data == data",
        "return isinstance(held, Found) and held.data == data",
    ),
    **FAULTY,
)
_edit(
    "unheard-put-is-done",
    "a put of a slot without a reply is taken for done",
    window,
    "write_slot",
    ("if isinstance(reply, Done):", "if not isinstance(reply, Refused):"),
    **FAULTY,
)
MUTANTS.append(
    SlotMutant(
        "foreign-is-fenced-for-sure",
        "what is found in a slot that trim has passed is believed",
        lambda patch: patch.edit(takeover, "still_walked", ("found[0].next <= slot", "True")),
        play=a_commit_is_absorbed_and_its_slot_taken,
    )
)

# Claims --------------------------------------------------------------------------------------------------------------

_edit(
    "fence-over-whatever-is-there",
    "a fence is put without asking that the slot be empty",
    takeover,
    "take_over",
    ("yield PutIfAbsent(", f"yield {_PUT}"),
)
_edit(
    "fence-unheard-is-there",
    "a fence without a reply is taken for put",
    takeover,
    "take_over",
    (
        "if not isinstance(reply, Done):",
        "if not isinstance(reply, (Done, __import__('headwater.log.asks', fromlist=['Unsure']).Unsure)):",
    ),
    **FAULTY,
)
_edit(
    "any-fence-is-ours",
    "a fence at the end of the walk is taken for our own",
    takeover,
    "take_over",
    (" or walk.fence[1] != token", ""),
)
_edit(
    "epoch-not-raised",
    "a claim takes the epoch that it met",
    takeover,
    "take_over",
    ("walk.epoch + 1", "max(walk.epoch, 1)"),
)
_edit(
    "old-walk-kept",
    "a walk goes on where it was, though trim has changed",
    takeover,
    "take_over",
    ("if walk is None or walk.etag != etag:", "if walk is None:"),
    **BUSY,
)
_edit(
    "swapped-on-whatever-is-there",
    "a swap that was refused is tried again on the etag that is there",
    takeover,
    "swap_trim",
    (
        "return there.etag if there.data == data else None",
        "if there.data == data:\n                return there.etag\n            etag = there.etag",
    ),
)
_edit(
    "swap-unheard-is-done",
    "a swap without a reply is taken for done",
    takeover,
    "swap_trim",
    (
        "        there = yield Get(name)\n",
        "        if hasattr(reply, 'why'):\n            return etag\n        there = yield Get(name)\n",
    ),
    **FAULTY,
)
_edit(
    "own-earlier-trim-is-anothers",
    "an owner that finds the trim of its own earlier try says that it was fenced",
    takeover,
    "move_trim",
    ("if there is None or (there[0].epoch, there[0].token) != (manifest.epoch, manifest.token):", "if True:"),
    rolls=0.3,
    steps=300,
    act_share=0.45,
    faults=Faults(0.1, 0.02, 0.02),
)
_edit(
    "trim-put-over-anothers",
    "an owner puts its trim over whatever is there",
    takeover,
    "move_trim",
    (" or (there[0].epoch, there[0].token) != (manifest.epoch, manifest.token)", ""),
)
_edit(
    "claimed-by-fence-alone",
    "a claim counts once its fence is there, whatever trim says",
    takeover,
    "take_over",
    (
        "swapped = yield from swap_trim(directory, owned, etag)",
        "swapped = (yield from swap_trim(directory, owned, etag)) or etag",
    ),
)
_edit(
    "begins-over-a-log",
    "a new log's trim is put whatever is there",
    takeover,
    "begin",
    ("yield PutIfAbsent(", f"yield {_PUT}"),
)
_edit(
    "token-used-again",
    "an owner claims with the token of its last claim",
    Owner,
    "_new_token",
    ('return self.world.number().to_bytes(16, "big")', "return (self.name * 16).encode()"),
    faults=Faults(0.0, 0.1, 0.0),
    owners=1,
    readers=0,
    window=2,
    claim_share=0.9,
    death_share=0.1,
    late_share=1.0,
)

# Walks and trims -----------------------------------------------------------------------------------------------------

_edit(
    "fences-believed-unread",
    "a fence in a slot that trim has passed is believed",
    takeover,
    "walk_on",
    ("if says_fence(reply.data) and not (yield from still_walked(directory, walk.next_slot)):", "if False:"),
    **BUSY,
)
_edit(
    "trim-beyond-what-is-confirmed",
    "trim moves to a slot that was issued, and is not confirmed",
    Owner,
    "_confirmed_below",
    ("lowest_unconfirmed", "next_slot"),
    **FAULTY,
)
_edit(
    "slots-deleted-before-trim-moves",
    "slots are deleted while trim still says that the walk begins with them",
    Owner,
    "absorb",
    ("    self.trimming = self", "    self._delete(deleted)\n    self.trimming = self"),
)


def by_name(name: str) -> SlotMutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)
