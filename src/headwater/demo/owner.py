"""The owner of the log, as a process: the server of `headwater serve`, without HTTP, on a port that it is told.

    python -m headwater.demo.owner DIRECTORY PORT

It makes the two topics if they are not there, says {"ready": true} when it answers, and is killed with SIGKILL when
the schedule says so.
"""

from __future__ import annotations

import logging
import sys

from headwater.api.log import Log
from headwater.api.opening import open_engine
from headwater.demo.children import tell, until_input_ends
from headwater.demo.rows import ACCOUNTS, ACCOUNTS_SCHEMA, ACCOUNTS_TABLE, ORDERS, ORDERS_SCHEMA, ORDERS_TABLE
from headwater.server.access import OpenAccess
from headwater.server.serving import Server
from headwater.server.settings import ServerSettings
from headwater.settings import MIB, LogSettings, Settings

SETTINGS = Settings(log=LogSettings(segment_size_bytes_max=2 * MIB, write_body_bytes_max=1 * MIB, reserve_bytes=0))
"""Small segments, so that a minute makes several."""
LOOPBACK = "127.0.0.1"


def main() -> None:
    directory, port = sys.argv[1], int(sys.argv[2])
    logging.basicConfig(level=logging.ERROR)
    opened = open_engine(directory, settings=SETTINGS)
    settings = ServerSettings(listen=(LOOPBACK, port), http=None)
    server = Server(opened.engine, opened.lake, opened.directory, settings, OpenAccess())
    until_input_ends(lambda message: None, server.ended.set)
    if not server.start():
        return
    log = Log(opened.engine, opened.directory, opened.lake)
    log.topic(ORDERS, schema=ORDERS_SCHEMA, table=ORDERS_TABLE, partitions=2)
    log.topic(ACCOUNTS, schema=ACCOUNTS_SCHEMA, key="account", table=ACCOUNTS_TABLE, partitions=2)
    tell(ready=True)
    lost = server.wait()
    server.stop()
    log.close()
    if lost is not None:
        raise SystemExit(f"the log is lost to its owner: {lost}")


if __name__ == "__main__":
    main()
