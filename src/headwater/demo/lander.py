"""A lander, as a process: it opens the data directory, and lands when it is told to.

    python -m headwater.demo.lander DIRECTORY

{"land": true}                          one round; answered by {"report": [...]} or {"trouble": "..."}
{"land": true, "stop_at": POINT}        the same, and it stops at that point of the first commit: {"stopped": POINT}
{"land": true, "after_rollback": [..]}  the same, with what a person decided; "landed_lsn": {..} likewise
{"go_on": true}                         one that has stopped goes on

PROMISE  It keeps nothing: what it knows it reads from the table and the ledger, each time.
"""

from __future__ import annotations

import logging
import queue
import sys
from typing import Any

from headwater.api.opening import open as open_log
from headwater.demo.children import Message, tell, until_input_ends
from headwater.demo.stopping_catalog import StoppingCatalog, catalog_properties
from headwater.errors import HeadwaterError
from headwater.lake.catalog import catalog_place
from headwater.lake.report import LandingReport


def main() -> None:
    directory = sys.argv[1]
    logging.getLogger("headwater.lake").addHandler(logging.NullHandler())
    waiting: queue.Queue[Message] = queue.Queue()

    def on_message(message: Message) -> None:
        if message.get("go_on"):
            StoppingCatalog.go_on.set()
        else:
            waiting.put(message)

    until_input_ends(on_message)
    catalog = catalog_properties(catalog_place(None, directory=directory).properties)
    with open_log(directory, catalog=catalog) as log:
        tell(ready=True)
        while True:
            asked = waiting.get()
            StoppingCatalog.go_on.clear()
            StoppingCatalog.stop_at = asked.get("stop_at")
            try:
                decided = {name: asked[name] for name in ("after_rollback", "landed_lsn") if name in asked}
                report = log.land(**decided)
            except HeadwaterError as error:
                tell(trouble=f"{type(error).__name__}: {error}")
            else:
                tell(report=as_content(report))


def as_content(report: LandingReport) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.topic,
            "outcome": each.outcome,
            "rows": each.rows,
            "lsn_to": each.lsn_to,
            "adopted": each.adopted,
            "verified": each.verified,
            "cause": each.cause,
            "message": each.message,
        }
        for each in report
    ]


if __name__ == "__main__":
    main()
