"""A fixed life of a small metadata journal, each step answered by name: what crashes and faults are put into.

STEPS    A journal with two checkpoints behind it lives on: an append, a checkpoint that also lets go of a segment, a
         clean close, a second life, another checkpoint.  And one whose ring is nearly full: an append that a checkpoint
         must come before.
ANSWERS  A step that was refused is over.  After any error the journal is closed, and the next step opens it again.
NOT HERE Which call fails: the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headwater.errors import HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.metadata.journal import Journal
from headwater.metadata.operations import DeleteGroup, Operation
from headwater.metadata.state import MetadataState
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.metadata.small_journals import (
    ONE_OF_EACH,
    create,
    facts,
    group,
    groups,
    journal_on,
)


class World:
    """A journal, what it has acknowledged, and what may be there besides."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.files = files
        self.journal: Journal | None = journal_on(files)
        self.acknowledged = facts(self.journal.state)
        self.history = {self.acknowledged}
        """What a reader may see where a power loss has left an older mark: no less than some state that was true."""
        self.in_flight: bytes | None = None
        self.answers: list[str] = []

    @property
    def allowed(self) -> set[bytes]:
        return {self.acknowledged} | ({self.in_flight} if self.in_flight is not None else set())

    def append(self, *operations: Operation) -> None:
        def act(journal: Journal) -> None:
            state = journal.refresh().copy()
            for number, operation in enumerate(operations):
                state.apply(state.lsn + number + 1, operation)
            self.in_flight = facts(state)
            try:
                self.acknowledged = facts(journal.append(operations))
            except (Unavailable, Poisoned):
                self.in_flight = None
                raise
            self.in_flight = None
            self.history.add(self.acknowledged)

        self.act(act)

    def checkpoint(self) -> None:
        self.act(lambda journal: journal.checkpoint())

    def close(self) -> None:
        def act(journal: Journal) -> None:
            self.journal = None
            journal.close()

        self.act(act)

    def act(self, act: Callable[[Journal], object]) -> None:
        """After an unknown outcome the journal is closed, and the next step opens it again."""
        try:
            if self.journal is None:
                self.journal = journal_on(self.files)
                self.journal.claim()
                found = facts(self.journal.state)
                assert found in self.allowed, "what was acknowledged is not there, or something else is"
                self.acknowledged, self.in_flight = found, None
            act(self.journal)
        except (Unavailable, OutcomeUnknown, Poisoned, OSError) as error:
            self.answers.append(type(error).__name__)
            broken, self.journal = self.journal, None
            if broken is not None:
                try:
                    broken.close()
                except (OutcomeUnknown, Poisoned) as second:
                    self.answers.append(type(second).__name__)


def with_two_checkpoints() -> SimulatedFiles:
    files = SimulatedFiles()
    with journal_on(files) as journal:
        journal.append(ONE_OF_EACH)
        journal.checkpoint()
        journal.append([create(4)])
        journal.checkpoint()
        journal.append([group(1)])
    return files


def live(world: World) -> None:
    world.append(group(2), group(3))
    world.checkpoint()
    world.append(create(5))
    world.close()
    world.append(group(4))
    world.checkpoint()
    world.checkpoint()
    world.append(group(5), group(6))
    world.close()


def live_from_nothing(world: World) -> None:
    world.append(create(1), create(2))
    world.checkpoint()
    world.append(group(2))
    world.checkpoint()
    world.append(group(3))
    world.checkpoint()
    world.close()


def live_with_a_full_ring(world: World) -> None:
    """An append that a checkpoint must come before."""
    world.append(*(DeleteGroup(f"group-{number}") for number in range(1_000, 1_100)))


def with_a_nearly_full_ring() -> SimulatedFiles:
    files = with_two_checkpoints()
    with journal_on(files) as journal:
        journal.append(groups(1_000, 885))
    return files


def check(state: SimulatedFiles, allowed: set[bytes], history: set[bytes], *, number: int = 999_999) -> None:
    """Open what is left, as a reader and as an owner: no other state than those allowed, and the journal goes on."""
    reader = journal_on(state)
    assert facts(reader.state) in allowed | history, "a reader sees another state"
    last_lsn = reader.state.lsn
    reader.close()
    with journal_on(state, seed=number) as journal:
        journal.claim()
        assert facts(journal.state) in allowed, "an owner sees another state"
        assert journal.state.lsn >= last_lsn, "an owner sees less than a reader"
        after = journal.append([group(number)])
        journal.checkpoint()
        assert journal.checkpoint_lsn == journal.last_lsn == after.lsn
    again = journal_on(state)
    assert again.state == after
    again.close()


def check_with_a_second_crash(state: SimulatedFiles, world: World, chance: Random) -> int:
    """As `check`, with a power loss before each of its own calls; returns how many."""
    second = 888_888
    first = world.allowed
    both = first | {_with_group(packed, second) for packed in first}
    looked = 0

    def look(verb: str, name: str) -> None:
        nonlocal looked
        looked += 1
        check(state.crash(chance), both, both | world.history)

    state.before_call = look
    check(state, first, world.history, number=second)
    state.before_call = None
    return looked


def _with_group(packed: bytes, number: int) -> bytes:
    state = MetadataState.unpack(packed)
    state.apply(1, group(number))
    return facts(state)


def crash_at_every_call(
    files: SimulatedFiles, live: Callable[[World], None], *, mixes: int, second_crash_share: float = 0.0, seed: int = 7
) -> int:
    """Crash before each call; returns how many states were looked at."""
    world = World(files)
    chance = Random(seed)
    looked = 0

    def look(verb: str, name: str) -> None:
        nonlocal looked
        states = [("kill", files.restart()), ("nothing kept", files.crash(chance, choice=Choice.NOTHING))]
        states += [(f"mix {number}", files.crash(chance)) for number in range(mixes)]
        for how, state in states:
            looked += 1
            try:
                if chance.random() < second_crash_share:
                    looked += check_with_a_second_crash(state, world, chance)
                else:
                    check(state, world.allowed, world.history)
            except (AssertionError, HeadwaterError, OSError) as error:
                raise AssertionError(f"before {verb} {name}, {how}: {error!r}") from error

    files.before_call = look
    live(world)
    files.before_call = None
    assert world.answers == []
    check(files.restart(), world.allowed, world.history)
    return looked
