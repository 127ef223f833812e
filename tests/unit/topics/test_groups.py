"""Who of a group reads which partition: never two, evenly, and nobody after his time."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headwater.clock import ManualClock
from headwater.errors import Fenced
from headwater.topics.groups import Generation, GroupCoordinator, Lease, plan_assignment

LEASE_S = 30.0
TOPIC = 7


class World:
    """A coordinator on a clock that stands still, and the topic's number of partitions."""

    def __init__(self, partitions: int = 4) -> None:
        self.clock = ManualClock()
        self.epoch = 3
        self.partitions = partitions
        self.coordinator = GroupCoordinator(self.clock, LEASE_S, lambda: self.epoch)

    def join(self, group: str = "billing") -> str:
        return self.coordinator.join(group, TOPIC, self.partitions)

    def poll(self, member: str, group: str = "billing", busy: tuple[int, ...] = ()) -> dict[int, Generation]:
        leases = self.coordinator.poll(group, TOPIC, member, self.partitions, busy)
        return {lease.partition: lease.generation for lease in leases}

    def is_current(self, partition: int, generation: Generation, group: str = "billing") -> bool:
        try:
            self.coordinator.check(group, TOPIC, partition, generation)
        except Fenced:
            return False
        return True


@pytest.fixture
def world() -> World:
    return World()


# ------------------------------------------------------------------------------------------------------ the plan


def fewest_moves(members: list[str], partitions: list[int], held: dict[int, str]) -> int:
    """By trying every even assignment there is."""
    fewest = len(partitions)
    for owners in product(members, repeat=len(partitions)):
        sizes = Counter(dict.fromkeys(members, 0))
        sizes.update(owners)
        if max(sizes.values()) - min(sizes.values()) <= 1:
            moves = sum(held.get(number) != owner for number, owner in zip(partitions, owners, strict=True))
            fewest = min(fewest, moves)
    return fewest


@given(
    count=st.integers(1, 3),
    partitions=st.integers(0, 6),
    holders=st.lists(st.sampled_from(["a", "b", "c", "gone", ""]), min_size=6, max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_a_plan_is_even_and_moves_as_few_as_any_even_plan(count: int, partitions: int, holders: list[str]) -> None:
    members = ["a", "b", "c"][:count]
    numbers = list(range(partitions))
    held = {number: holders[number] for number in numbers if holders[number]}

    planned = plan_assignment(members, numbers, held)

    assert sorted(planned) == numbers
    sizes = Counter(dict.fromkeys(members, 0))
    sizes.update(planned.values())
    assert set(sizes) == set(members)
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert sum(held.get(number) != planned[number] for number in numbers) == fewest_moves(members, numbers, held)


def test_a_plan_does_not_depend_on_the_order_in_which_members_and_partitions_are_named() -> None:
    plans = [
        plan_assignment(members, numbers, {1: "b", 3: "b", 0: "b"})
        for members in permutations(["a", "b", "c"])
        for numbers in permutations([0, 1, 2, 3])
    ]

    assert all(plan == {0: "b", 1: "b", 2: "a", 3: "c"} for plan in plans)
    assert plan_assignment(["b", "a"], [3, 0, 1, 2], {}) == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_a_plan_for_nobody_is_empty_and_more_members_than_partitions_leave_some_without() -> None:
    assert plan_assignment([], [0, 1], {0: "gone"}) == {}
    assert plan_assignment(["a", "b", "c"], [0, 1], {0: "c"}) == {0: "c", 1: "a"}


# ---------------------------------------------------------------------------------------------------- the leases


def test_the_first_member_holds_every_partition(world: World) -> None:
    member = world.join()

    leases = world.coordinator.poll("billing", TOPIC, member, 4)

    assert [lease.partition for lease in leases] == [0, 1, 2, 3]
    assert all(lease == Lease(lease.partition, Generation(3, lease.generation.counter)) for lease in leases)
    assert world.poll(member) == {lease.partition: lease.generation for lease in leases}


def test_two_members_share_and_nothing_moves_before_its_holder_has_polled(world: World) -> None:
    first = world.join()
    before = world.poll(first)
    second = world.join()

    # The first has not polled since the second came: it may still be at work on every partition.
    assert world.poll(second) == {}
    assert all(world.is_current(number, generation) for number, generation in before.items())

    kept = world.poll(first)
    taken = world.poll(second)

    assert len(kept) == len(taken) == 2 and kept.keys() | taken.keys() == set(range(4))
    assert all(kept[number] == before[number] for number in kept), "what stays keeps its generation"
    for number, generation in taken.items():
        assert generation > before[number]
        assert not world.is_current(number, before[number])
        assert world.is_current(number, generation)


def test_a_third_member_gets_its_share_and_as_few_as_possible_move() -> None:
    world = World(partitions=6)
    members = [world.join(), world.join()]
    for member in members * 2:
        world.poll(member)
    before = {name: world.poll(name) for name in members}

    third = world.join()
    for member in [*members, third]:
        world.poll(member)

    assert len(world.poll(third)) == 2
    for name in members:
        now = world.poll(name)
        assert len(now) == 2 and now.items() <= before[name].items()


def test_a_member_that_leaves_gives_everything_to_the_others_at_once(world: World) -> None:
    first, second = world.join(), world.join()
    for member in (first, second, first, second):
        world.poll(member)
    left = world.poll(first)

    world.coordinator.leave("billing", TOPIC, first)

    assert not any(world.is_current(number, generation) for number, generation in left.items())
    assert sorted(world.poll(second)) == [0, 1, 2, 3]
    world.coordinator.leave("billing", TOPIC, first)
    world.coordinator.leave("nobody", TOPIC, first)
    assert [status.member for status in world.coordinator.members("billing", TOPIC)] == [second]


def test_a_dead_member_s_partitions_are_taken_when_its_lease_has_run_out_and_not_before(world: World) -> None:
    dead, alive = world.join(), world.join()
    for member in (dead, alive, dead, alive):
        world.poll(member)
    of_the_dead = world.poll(dead)

    world.clock.advance(LEASE_S - 0.001)
    assert len(world.poll(alive)) == 2
    world.clock.advance(0.001)
    taken = world.poll(alive)

    assert sorted(taken) == [0, 1, 2, 3]
    for number, generation in of_the_dead.items():
        assert taken[number] > generation
        with pytest.raises(Fenced) as fenced:
            world.coordinator.check("billing", TOPIC, number, generation)
        assert fenced.value.facts["current"] == tuple(taken[number])


def test_a_wall_clock_that_jumps_ends_no_lease(world: World) -> None:
    first, second = world.join(), world.join()
    for member in (first, second, first):
        world.poll(member)

    world.clock.set_wall_clock(world.clock.now_us() + 10**13)

    assert len(world.poll(second)) == 2


def test_a_slow_member_may_commit_until_somebody_has_noticed_and_then_never_again(world: World) -> None:
    slow = world.join()
    leases = world.poll(slow)
    world.clock.advance(LEASE_S * 10)

    assert world.is_current(0, leases[0])
    assert world.coordinator.members("billing", TOPIC)[0].lease_left_s == -9 * LEASE_S
    assert world.is_current(0, leases[0]), "looking is not noticing"
    world.join()

    assert not world.is_current(0, leases[0])


def test_a_member_that_comes_back_late_gets_new_generations(world: World) -> None:
    member = world.join()
    before = world.poll(member)
    world.clock.advance(LEASE_S)

    after = world.poll(member)

    assert sorted(after) == [0, 1, 2, 3]
    assert all(after[number] > before[number] for number in after)
    assert not any(world.is_current(number, generation) for number, generation in before.items())


def test_a_poll_renews_the_lease(world: World) -> None:
    member, other = world.join(), world.join()
    for name in (member, other, member, other):
        world.poll(name)
    before = world.poll(member)

    for _ in range(5):
        world.clock.advance(LEASE_S * 0.9)
        assert world.poll(member) == before
        world.poll(other)


def test_a_busy_holder_keeps_a_partition_until_it_has_committed_but_no_longer_than_a_lease(world: World) -> None:
    holder = world.join()
    before = world.poll(holder)
    other = world.join()
    world.poll(other)

    # It is at work on two; of the others it gives up what it must.
    assert world.poll(holder, busy=(2, 3)).keys() >= {2, 3}
    for _ in range(9):
        world.clock.advance(LEASE_S / 10)
        assert world.poll(holder, busy=(0, 1, 2, 3)).keys() >= {2, 3}
        assert len(world.poll(other)) + len(world.poll(holder, busy=(0, 1, 2, 3))) == 4
    world.clock.advance(LEASE_S / 10)
    kept = world.poll(holder, busy=(0, 1, 2, 3))

    assert len(kept) == 2 and kept.items() <= before.items()
    assert len(world.poll(other)) == 2


def test_a_busy_holder_gives_up_as_soon_as_it_is_not_busy(world: World) -> None:
    holder = world.join()
    world.poll(holder)
    other = world.join()

    assert len(world.poll(holder, busy=(0, 1, 2, 3))) == 4
    assert world.poll(other) == {}
    assert len(world.poll(holder)) == 2
    assert len(world.poll(other)) == 2


def test_a_holder_that_was_asked_and_then_is_to_keep_its_partition_has_a_whole_lease_when_asked_again(
    world: World,
) -> None:
    holder = world.join()
    world.poll(holder)
    asked_first = world.join()
    assert len(world.poll(holder, busy=(0, 1, 2, 3))) == 4
    world.coordinator.leave("billing", TOPIC, asked_first)
    world.clock.advance(LEASE_S / 2)
    world.poll(holder)

    world.join()
    assert len(world.poll(holder, busy=(0, 1, 2, 3))) == 4
    world.clock.advance(LEASE_S * 0.9)

    assert len(world.poll(holder, busy=(0, 1, 2, 3))) == 4


@pytest.mark.parametrize("leaves", [True, False])
def test_the_time_that_one_holder_was_given_is_not_counted_against_the_next(leaves: bool) -> None:
    world = World(partitions=2)
    holder = world.join()
    world.poll(holder)
    second = world.join()
    assert len(world.poll(holder, busy=(0, 1))) == 2
    if leaves:
        world.coordinator.leave("billing", TOPIC, holder)
    else:
        world.poll(holder)
        world.coordinator.leave("billing", TOPIC, holder)
    world.clock.advance(LEASE_S * 0.9)
    assert len(world.poll(second)) == 2

    world.join()
    assert len(world.poll(second, busy=(0, 1))) == 2
    world.clock.advance(LEASE_S * 0.9)

    assert len(world.poll(second, busy=(0, 1))) == 2


def test_a_group_that_everybody_left_is_forgotten(world: World) -> None:
    world.coordinator.leave("billing", TOPIC, world.join())

    # A group that was kept would remember the four partitions.
    world.partitions = 2
    assert len(world.poll(world.join())) == 2


def test_partitions_that_are_added_are_shared_out_and_a_caller_who_looked_too_early_takes_none_away(
    world: World,
) -> None:
    first, second = world.join(), world.join()
    for member in (first, second, first, second):
        world.poll(member)
    before = world.poll(first) | world.poll(second)

    world.partitions = 7
    grown = world.poll(first) | world.poll(second)
    world.partitions = 4
    early = world.poll(first) | world.poll(second)

    assert sorted(grown) == list(range(7)) and before.items() <= grown.items()
    assert early == grown


def test_groups_and_topics_do_not_meet(world: World) -> None:
    billing, audit = world.join("billing"), world.join("audit")

    assert len(world.poll(billing)) == len(world.poll(audit, "audit")) == 4
    assert len(world.coordinator.poll("billing", TOPIC + 1, billing, 2)) == 2
    assert len(world.poll(billing)) == 4


def test_what_was_never_given_is_fenced(world: World) -> None:
    member = world.join()
    generation = world.poll(member)[0]

    assert not world.is_current(4, generation)
    assert not world.is_current(0, Generation(generation.epoch, generation.counter + 1))
    assert not world.is_current(0, Generation(generation.epoch - 1, generation.counter))
    assert not world.is_current(0, generation, group="audit")


def test_generations_and_names_of_the_next_life_are_new() -> None:
    world = World()
    member = world.join()
    before = world.poll(member)

    # The owner of the log dies, and the next one claims it with a higher epoch.
    next_life = World()
    next_life.epoch = 4
    newcomer = next_life.join()
    after = next_life.poll(newcomer)

    assert newcomer != member
    assert all(after[number] > before[number] for number in after)
    assert not any(next_life.is_current(number, generation) for number, generation in before.items())
    # A member of the earlier life that polls again is one more, and not the newcomer.
    assert next_life.poll(member) == {}
    assert {status.member for status in next_life.coordinator.members("billing", TOPIC)} == {member, newcomer}


def test_status_names_members_partitions_and_what_is_left_of_the_lease(world: World) -> None:
    assert world.coordinator.members("billing", TOPIC) == ()
    member = world.join()
    world.poll(member)
    world.clock.advance(10.0)

    (status,) = world.coordinator.members("billing", TOPIC)

    assert (status.member, status.partitions, status.lease_left_s) == (member, (0, 1, 2, 3), 20.0)


def test_many_threads_never_hold_one_partition_together() -> None:
    world = World(partitions=16)
    holding: dict[int, str] = {}
    guard = threading.Lock()
    wrong: list[str] = []

    def member_at_work() -> None:
        for _ in range(3):
            name = world.join()
            mine: set[int] = set()
            for _ in range(60):
                # What this member may be about to give up is no longer counted as held by it.
                with guard:
                    for number in mine:
                        del holding[number]
                leases = world.poll(name)
                with guard:
                    for number, generation in leases.items():
                        # Nobody's lease runs out here: the one that was given must be good, and alone.
                        if not world.is_current(number, generation):
                            wrong.append(f"{number} of {name} is not current")
                        if number in holding:
                            wrong.append(f"{number} is held by {holding[number]} and by {name}")
                    mine = set(leases)
                    holding.update(dict.fromkeys(mine, name))
            with guard:
                for number in mine:
                    del holding[number]
            world.coordinator.leave("billing", TOPIC, name)

    threads = [threading.Thread(target=member_at_work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert world.coordinator.members("billing", TOPIC) == ()


# ------------------------------------------------------------------------------------------------ in any order


class GroupMachine(RuleBasedStateMachine):
    """Joins, polls, leaves, silence, growth and restarts in any order, beside what each member believes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(partitions=3)
        self.believes: dict[str, dict[int, Generation]] = {}
        self.highest: dict[int, Generation] = {}

    @rule()
    def join(self) -> None:
        if len(self.believes) < 5:
            name = self.world.join()
            assert name not in self.believes
            self.believes[name] = {}

    def poll_and_note(self, name: str, busy: tuple[int, ...] = ()) -> None:
        before = self.believes[name]
        self.believes[name] = now = self.world.poll(name, busy=busy)
        for number, generation in now.items():
            if before.get(number) == generation:
                continue
            # A lease that was not there before is later than every lease of this partition that ever was.
            assert number not in self.highest or generation > self.highest[number]
            self.highest[number] = generation
        for number, generation in before.items():
            # Nobody works on under a lease that another has: what it believed until now was current, or is over.
            assert now.get(number) == generation or not self.world.is_current(number, generation)

    @precondition(lambda self: self.believes)
    @rule(data=st.data(), busy=st.sets(st.integers(0, 5)))
    def poll(self, data: st.DataObject, busy: set[int]) -> None:
        self.poll_and_note(data.draw(st.sampled_from(sorted(self.believes))), tuple(busy))

    @precondition(lambda self: self.believes)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.believes)))
        self.world.coordinator.leave("billing", TOPIC, name)
        for number, generation in self.believes.pop(name).items():
            assert not self.world.is_current(number, generation)

    @rule(part=st.sampled_from([0.1, 0.5, 0.99, 1.0, 3.0]))
    def time_passes(self, part: float) -> None:
        self.world.clock.advance(LEASE_S * part)

    @precondition(lambda self: self.world.partitions < 6)
    @rule()
    def grow(self) -> None:
        self.world.partitions += 1

    @rule()
    def restart(self) -> None:
        world = World(self.world.partitions)
        world.epoch = self.world.epoch + 1
        self.world = world

    @precondition(lambda self: self.believes)
    @rule()
    def settle(self) -> None:
        # Once to be known again, once to give up what others are to have, once to take what others gave up.
        for name in sorted(self.believes) * 3:
            self.poll_and_note(name)

        sizes = [len(leases) for leases in self.believes.values()]
        assert sum(sizes) == self.world.partitions
        assert max(sizes) - min(sizes) <= 1
        held = [number for leases in self.believes.values() for number in leases]
        assert sorted(held) == list(range(self.world.partitions))

    @invariant()
    def no_partition_has_two_current_leases(self) -> None:
        current = Counter(
            number
            for leases in self.believes.values()
            for number, generation in leases.items()
            if self.world.is_current(number, generation)
        )
        assert all(count == 1 for count in current.values())

    @invariant()
    def nobody_within_its_lease_is_fenced(self) -> None:
        for status in self.world.coordinator.members("billing", TOPIC):
            assert set(status.partitions) == self.believes[status.member].keys() or status.lease_left_s <= 0
            for number in status.partitions:
                assert self.world.is_current(number, self.believes[status.member][number])


def test_no_partition_ever_has_two_current_leases_whatever_happens() -> None:
    run_state_machine_as_test(
        GroupMachine,
        settings=settings(
            max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
