"""How a process becomes the owner of a log on an object store, and how an owner moves `trim`.

    (a) read `trim`, keep its etag           (c) put a fence there, if nothing is there
    (b) walk to the first slot that is not   (d) swap `trim` for one with the fence's epoch and token, on the etag of
        there                                    (a): from before the walk
                                             (e) the first slot of the new owner is W after the fence

WHY      A fence ends the slots of whoever wrote before: the lowest slot that it has not confirmed will turn out to be
         the fence, or it has confirmed all before it.  Its other W - 1 slots in flight fall on void ones.
         A walk that met a slot which was deleted meanwhile would see the log's end there.  Deleting begins with a swap
         of `trim`, so the swap in (d) fails then, and the walk begins anew.
PROMISE  At most one owner for an epoch; epochs only rise (docs/objects.md, O1 to O6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import Fenced, LostSegment
from headwater.log.asks import Absent, Asking, Done, Get, PutIfAbsent, PutIfMatch
from headwater.log.manifest import Manifest, pack_manifest, unpack_manifest
from headwater.log.slots import TRIM, says_fence, slot_name
from headwater.log.walk import Walk
from headwater.storage.objects import Found


@dataclass(frozen=True)
class Taken:
    """A claim that has succeeded."""

    walk: Walk
    """Up to and with the fence."""
    epoch: int
    manifest: Manifest
    etag: str

    @property
    def first_slot(self) -> int:
        return self.walk.next_slot


NewWalk = Callable[[Manifest, str], Walk]
MakeFence = Callable[[Walk, int], bytes]
"""The bytes of a fence of this epoch for the walk's next slot."""


def read_trim(directory: str) -> Asking[tuple[Manifest, str] | None]:
    """`trim` and its etag; nothing where there is none."""
    while True:
        reply = yield Get(f"{directory}/{TRIM}")
        if isinstance(reply, Found):
            return unpack_manifest(reply.data), reply.etag
        if isinstance(reply, Absent):
            return None


def still_walked(directory: str, slot: int) -> Asking[bool]:
    """Whether what was read from this slot just before is what the log's history has there.

    A slot is deleted only after `trim` has passed it.  A claim whose walk began before that takes it for the log's end,
    and puts a fence there which counts for nothing: so what is found in a slot that `trim` has passed says nothing."""
    found = yield from read_trim(directory)
    return found is not None and found[0].next <= slot


def walk_on(directory: str, walk: Walk) -> Asking[bool]:
    """Take in every slot that is there: True at the log's end, False where `trim` has passed the walk, which must begin
    anew.  A fence is believed only once `trim` has been read after it."""
    while True:
        reply = yield Get(f"{directory}/{slot_name(walk.next_slot)}")
        if isinstance(reply, Found):
            if says_fence(reply.data) and not (yield from still_walked(directory, walk.next_slot)):
                return False
            walk.add(reply.data)
        elif isinstance(reply, Absent):
            return True


def begin(directory: str, manifest: Manifest) -> Asking[None]:
    """A new log: `trim` is put if nobody else has."""
    while True:
        reply = yield PutIfAbsent(f"{directory}/{TRIM}", pack_manifest(manifest))
        if not isinstance(reply, Done):
            there = yield from read_trim(directory)
            if there is None:
                continue
        return


def take_over(
    directory: str,
    token: bytes,
    new_walk: NewWalk,
    make_fence: MakeFence,
    *,
    walk: Walk | None = None,
    as_epoch: int | None = None,
) -> Asking[Taken]:
    """Become the owner.  `walk` is one that was begun earlier: it is gone on with if `trim` has not changed.
    With `as_epoch` only from owners of earlier epochs.  Fenced where another claim won; LostSegment where there is no
    log any more."""
    while True:
        found = yield from read_trim(directory)
        if found is None:
            raise LostSegment("the log's trim object is gone: put it back from a copy", directory=directory)
        manifest, etag = found
        if walk is None or walk.etag != etag:
            walk = new_walk(manifest, etag)
        if not (yield from walk_on(directory, walk)):
            continue
        if walk.fence is None or walk.fence[1] != token:
            slot = slot_name(walk.next_slot)
            claimed = walk.epoch + 1
            if as_epoch is not None:
                if as_epoch < claimed:
                    raise Fenced(
                        "a later owner has it already: open it again to go on", directory=directory, epoch=as_epoch
                    )
                claimed = as_epoch
            data = make_fence(walk, claimed)
            reply = yield PutIfAbsent(f"{directory}/{slot}", data)
            if not isinstance(reply, Done):
                # Another's, or ours after a lost reply: the walk goes on and sees.
                continue
            walk.add(data)
        epoch = walk.end.epoch
        owned = manifest.owned_by(epoch, token)
        swapped = yield from swap_trim(directory, owned, etag)
        if swapped is not None:
            return Taken(walk, epoch, owned, swapped)
        there = yield from read_trim(directory)
        if there is not None and there[0].epoch >= epoch and there[0].token != token:
            raise Fenced(
                "another process has taken the log over at the same time: open it again",
                directory=directory,
                epoch=epoch,
            )


def swap_trim(directory: str, manifest: Manifest, etag: str) -> Asking[str | None]:
    """Put `trim` where it still has this etag: its new etag, or nothing where it has another content by now."""
    data = pack_manifest(manifest)
    name = f"{directory}/{TRIM}"
    while True:
        reply = yield PutIfMatch(name, data, etag)
        if isinstance(reply, Done):
            return reply.etag
        there = yield Get(name)
        if isinstance(there, Absent):
            return None
        if isinstance(there, Found) and there.etag != etag:
            # A reply may have been lost: then what is there is ours.
            return there.etag if there.data == data else None


def move_trim(directory: str, manifest: Manifest, etag: str) -> Asking[str]:
    """The same for an owner: whoever finds another's there has been fenced.  What is there may be its own, of an
    earlier try that was given up and done all the same: then this one is put over it."""
    while True:
        swapped = yield from swap_trim(directory, manifest, etag)
        if swapped is not None:
            return swapped
        there = yield from read_trim(directory)
        if there is None or (there[0].epoch, there[0].token) != (manifest.epoch, manifest.token):
            raise Fenced(
                "another process has taken the log over: nothing more is written here; open it again to go on",
                directory=directory,
                epoch=manifest.epoch,
            )
        etag = there[1]
