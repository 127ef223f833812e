"""Plays of owners that are written down step by step: what chance alone brings about too seldom."""

from __future__ import annotations

from tests.simulation.slot_owner import Actor, Owner
from tests.simulation.slot_world import Faults, Sending, SlotWorld, Violation


def sendings_of(world: SlotWorld, actor: Actor) -> list[Sending]:
    return [sending for sending in world.sendings if sending.actor is actor]


def go_on(world: SlotWorld, actor: Actor) -> None:
    """All that this actor has begun comes to its end, and nobody else moves."""
    while mine := sendings_of(world, actor):
        world.step_of(mine[0])


def until_it_asks_for(world: SlotWorld, actor: Actor, name: str) -> None:
    """It goes on until its next request is for this name, and stops before the store hears of it."""
    while sendings_of(world, actor)[0].request.name != name:
        world.step_of(sendings_of(world, actor)[0])


def a_commit_is_absorbed_and_its_slot_taken() -> None:
    """An owner's slot is written and its reply lost; its successor absorbs and deletes the slot; a claim that began
    long before takes that for the log's end and puts a fence there.  The owner must not say that its commit is not in
    the log: it is."""
    world = SlotWorld(0, 2, Faults())
    first, second, slow = (Owner(world, name, name.encode() * 16, 0.0) for name in "ABC")
    first.claim()
    go_on(world, first)

    # Somebody begins to claim, and is as slow as can be.
    slow.claim()
    until_it_asks_for(world, slow, f"log/{3:020}")

    # The owner commits; the reply is lost, and it asks again, but that stays on its way for long.
    first.commit()
    (sending,) = sendings_of(world, first)
    world.faults = Faults(lost=1.0)
    world.step_of(sending)
    world.faults = Faults()

    # Its successor takes the slot in, merges its segment with all that is in it, and deletes it.
    second.claim()
    go_on(world, second)
    second.commit()
    second.roll()
    second.commit()
    go_on(world, second)
    assert second.absorb()
    go_on(world, second)
    assert f"log/{3:020}" not in world.store.names()

    # Now the slow one sees no slot there, and puts its fence.
    while f"log/{3:020}" not in world.store.names():
        world.step_of(sendings_of(world, slow)[0])

    go_on(world, first)

    in_log = {entry.packed.content for entry in world.history.entries}
    if world.fenced & in_log:
        raise Violation(f"somebody was told that {min(world.fenced & in_log)!r} is not in the log: it is")
    assert world.counts["outcome unknown"] == 1
