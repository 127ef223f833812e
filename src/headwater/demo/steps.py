"""What each step of a schedule does to the crew and to the tables: docs/demo.md has them in a table.

PROMISE  After each step the landings go on, or ChaosFailed says why not.  A halt comes where a table was set back, by
         the names `gap` and `mark-unproven`, and nowhere else; it is resolved as docs/landing.md says.
"""

from __future__ import annotations

from typing import Any

from headwater.demo.crew import ANSWER_S, LANDERS, ChaosFailed, Crew, Report
from headwater.demo.rows import ACCOUNTS, CHANGES_TABLE, ORDERS, ORDERS_TABLE
from headwater.demo.schedule import Step
from headwater.demo.stopping_catalog import AFTER, BEFORE
from headwater.demo.wreckers import Wreckers

NOTICED_WITHIN_S = 60.0
CAUGHT_WITHIN_S = 2.0
TABLES = {ORDERS: ORDERS_TABLE, ACCOUNTS: CHANGES_TABLE}
"""Where the rows of each topic land."""


class Steps:
    def __init__(self, crew: Crew, wreckers: Wreckers) -> None:
        self._crew = crew
        self._wreckers = wreckers

    def take(self, step: Step) -> None:
        if step.kind != "kill anywhere":
            self._crew.pause(step.wait_s)
        match step.kind:
            case "land":
                self._crew.land()
            case "race":
                self._race()
            case "kill before commit":
                self._kill_at(BEFORE)
            case "kill after commit":
                self._kill_at(AFTER)
            case "kill anywhere":
                self._kill_anywhere(step)
            case "kill, compact, expire":
                self._kill_compact_expire()
            case "late commit":
                self._late_commit()
            case "kill in a race":
                self._kill_in_a_race()
            case "kill the owner":
                self._kill_owner()
            case "kill a writer":
                self._kill_writer(step)
            case "compact":
                self._compact(step)
            case "expire":
                self._expire(step)
            case "roll back":
                self._roll_back(step)

    # Landers -----------------------------------------------------------------------------------

    def _race(self) -> None:
        crew = self._crew
        racers = [crew.ready(place) for place in crew.landers]
        crew.tell(f"{LANDERS} landers land at once")
        crew.counts.races += 1
        for place in racers:
            crew.ask(place)
        for place in racers:
            crew.answered(place)

    def _kill_at(self, point: str) -> None:
        crew = self._crew
        place = crew.lander()
        if crew.stopped(place, point):
            crew.tell(f"kill -9: lander {place.number}, {point}", "kill")
            crew.kill_lander(place)
        crew.land()

    def _kill_anywhere(self, step: Step) -> None:
        crew = self._crew
        place = crew.lander()
        crew.ask(place)
        crew.pause(step.wait_s)
        crew.tell(f"kill -9: lander {place.number}, {step.wait_s * 1000:.0f} ms into its round", "kill")
        crew.kill_lander(place)
        crew.land()

    def _kill_compact_expire(self) -> None:
        """A lander dies behind its commit, and before anybody lands again the tables are compacted and every snapshot
        but the last expires: nothing of the table's history says any more what the dead one had landed."""
        crew = self._crew
        place = crew.lander()
        if crew.stopped(place, AFTER):
            crew.tell(f"kill -9: lander {place.number}, {AFTER}; nobody lands for a while", "kill")
            crew.kill_lander(place)
        for table in TABLES.values():
            before, after = self._wreckers.compact(table)
            gone = self._wreckers.expire(table, 1)
            crew.counts.compactions += 1
            crew.counts.expiries += 1
            crew.tell(f"somebody compacts {table}, {before} files into {after}, and expires {gone} snapshots", "others")
        crew.land()

    def _late_commit(self) -> None:
        """A lander that was held up sends its commit when others have landed the same rows: it must be refused."""
        crew = self._crew
        place = crew.lander()
        if not crew.stopped(place, BEFORE):
            return
        crew.tell(f"lander {place.number} is held up before its commit")
        other = crew.lander(but=[place])
        crew.ask(other)
        crew.answered(other)
        lost_before = crew.counts.races_lost
        place.child.send(go_on=True)
        crew.answered(place)
        if crew.counts.races_lost > lost_before:
            crew.counts.late_commits_refused += 1
            crew.tell(f"lander {place.number} goes on: its late commit was refused", "good")

    def _kill_in_a_race(self) -> None:
        crew = self._crew
        victim = crew.lander()
        others = [crew.ready(each) for each in crew.landers if each is not victim]
        crew.tell(f"{LANDERS} landers land at once, and one will die")
        crew.counts.races += 1
        crew.ask(victim, stop_at=AFTER)
        for place in others:
            crew.ask(place)
        victim.child.answer("stopped", "report", "trouble", within_s=ANSWER_S)
        for place in others:
            crew.answered(place)
        crew.tell(f"kill -9: lander {victim.number}, in the race", "kill")
        crew.kill_lander(victim)
        crew.land()

    # The log -----------------------------------------------------------------------------------

    def _kill_owner(self) -> None:
        crew = self._crew
        crew.tell("kill -9: the owner of the log, with four writers at work", "kill")
        crew.kill_owner()
        crew.start_owner()
        crew.every_writer_goes_on()
        crew.tell("the log is open again, and every writer goes on", "good")

    def _kill_writer(self, step: Step) -> None:
        crew = self._crew
        account = crew.known.accounts[step.number % len(crew.known.accounts)]
        until_s = crew.clock.monotonic_s() + CAUGHT_WITHIN_S
        while account.last in account.acknowledged and crew.clock.monotonic_s() < until_s:
            crew.pause(0.001)  # it waits between two requests: it is to die within one
        crew.tell(f"kill -9: writer {account.writer} ({account.how}), in its request {account.last}", "kill")
        crew.kill_writer(account)
        crew.start_writer(account)

    # The tables --------------------------------------------------------------------------------

    def _compact(self, step: Step) -> None:
        table = TABLES[step.topic]
        before, after = self._wreckers.compact(table)
        self._crew.counts.compactions += 1
        self._crew.tell(f"somebody compacts {table}: {before} data files become {after}", "others")
        self._crew.land()

    def _expire(self, step: Step) -> None:
        table = TABLES[step.topic]
        gone = self._wreckers.expire(table, step.number)
        self._crew.counts.expiries += 1
        self._crew.tell(f"somebody expires {gone} snapshots of {table}", "others")
        self._crew.land()

    def _roll_back(self, step: Step) -> None:
        """The table is set back: the topic must halt by name, and be landed again when a person says so."""
        crew, table = self._crew, TABLES[step.topic]
        back = self._wreckers.roll_back(table, step.number)
        while not back:
            # Its snapshots have expired: there is nothing to go back to before the next landing.
            crew.pause(0.2)
            crew.land()
            back = self._wreckers.roll_back(table, step.number)
        crew.counts.rollbacks += 1
        crew.tell(f"somebody sets {table} back by {back} snapshots", "others")
        for each in self._halted(table):
            if each["topic"] != step.topic:
                raise ChaosFailed(f"{each['topic']} halted by {each['cause']}: {each['message']}")
            self._resolve(each)

    def _resolve(self, halt: dict[str, Any]) -> None:
        """Do what docs/landing.md says of a table that was set back."""
        crew, topic = self._crew, halt["topic"]
        crew.counts.halts += 1
        if halt["cause"] == "gap":
            crew.tell(f"{topic} halts by name: gap. The docs say: headwater land --after-rollback {topic}", "good")
            crew.land(after_rollback=[topic])
        elif halt["cause"] == "mark-unproven":
            # It was set back to a compaction, and the landings before that have expired: only the rows tell.
            lsn = self._wreckers.newest_lsn(TABLES[topic])
            crew.tell(f"{topic} halts by name: mark-unproven. The docs say: land --landed-lsn {topic}={lsn}", "good")
            crew.land(landed_lsn={topic: lsn})
        else:
            raise ChaosFailed(f"{topic} halted by {halt['cause']}: {halt['message']}")

    def _halted(self, table: str) -> Report:
        """The halts of the first round that has any."""
        crew = self._crew
        until_s = crew.clock.monotonic_s() + NOTICED_WITHIN_S
        halted: Report = []
        while not halted:
            if crew.clock.monotonic_s() > until_s:
                raise ChaosFailed(f"{table} was set back, and nobody noticed")
            crew.pause(0.1)  # without a new row of the topic nobody looks at its table
            place = crew.lander()
            crew.ask(place)
            halted = [each for each in crew.answered(place, halts=True) if each["outcome"] == "halted"]
        return halted
