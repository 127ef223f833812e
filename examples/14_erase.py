"""Erasing: rows go from the log, the table, its old snapshots and files; a receipt stays, and audits pass."""

import headwater as hw

with hw.open("data_14") as log:
    visits = log.topic("visits", schema={"person": str, "page": str}, table="web.visits")
    visits.append([{"person": person, "page": "/"} for person in ("ada", "grace", "ada")])
    log.land()
    cut = log.cut("visits")

    would = log.erase("visits", "person = 'ada'", reason="ticket 4711", dry_run=True)
    print("would:", would)
    print(log.erase("visits", "person = 'ada'", reason="ticket 4711"))

    assert {row["person"] for row in visits.scan().to_pylist()} == {"grace"}
    assert {row["person"] for row in visits.scan(as_of=cut).to_pylist()} == {"grace"}, "cuts forget it too"
    assert {row["person"] for row in visits.read().to_pylist()} == {"grace"}
    audit = log.audit()
    audit.raise_for_status()
    print(audit)
