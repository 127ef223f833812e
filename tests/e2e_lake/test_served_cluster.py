"""A standalone cluster lands, audits and reads through a server, with TLS and a token for one topic."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.server.access import parse_grant
from headwater.server.tokens import create
from headwater.settings import KIB, LogSettings
from headwater.storage.disk import DiskFiles
from tests.lake_spark.sessions import REPOSITORY, run_driver, settings_of_every_session, standalone_cluster
from tests.servers.certificates import make_certificates
from tests.servers.headwater import ServerProcess

DRIVER = Path(__file__).with_name("served_driver.py")
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("amount", pa.float64())])
LOG = LogSettings(segment_size_bytes_max=256 * KIB, write_body_bytes_max=64 * KIB, reserve_bytes=0)
WRITES, ROWS = 12, 2_000


def fill(directory: Path) -> int:
    """Two topics whose frames lie between each other's, in several segments."""
    with hw.open(directory, settings=hw.Settings(log=LOG)) as log:
        orders = log.topic("orders", SCHEMA, table="lake.orders", partitions=2)
        secrets = log.topic("secrets", SCHEMA, table="lake.secrets")
        for number in range(WRITES):
            ids = list(range(number * ROWS, (number + 1) * ROWS))
            orders.append(pa.table({"id": ids, "amount": [float(each) for each in ids]}, schema=SCHEMA))
            secrets.append(pa.table({"id": [-1] * 100, "amount": [0.0] * 100}, schema=SCHEMA))
    return WRITES * ROWS


@pytest.mark.timeout(600)
def test_a_cluster_without_the_logs_disk_lands_audits_and_reads_through_a_server(tmp_path: Path) -> None:
    rows = fill(tmp_path / "data")
    certificates = make_certificates(tmp_path / "certificates")
    token_file = tmp_path / "token"
    grants = ("land:orders", "read:orders", "write:orders")
    token_file.write_text(create(DiskFiles(tmp_path / "data"), "cluster", tuple(map(parse_grant, grants))))
    catalog = {
        "name": "elsewhere",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/lake",
    }
    tls = certificates.tls()
    options = ("--tls-cert", tls.cert_file, "--tls-key", tls.key_file, "--tokens", "--http", "none")
    # A client waits for a server that is being started.
    server = ServerProcess(tmp_path / "data", *options, wait_ready=False)

    with server, standalone_cluster(tmp_path) as cluster:
        address = f"hws://127.0.0.1:{server.port}"
        settings = {**settings_of_every_session(), **cluster.settings, "spark.executorEnv.PYTHONPATH": str(REPOSITORY)}
        arguments: list[str | Path] = [
            DRIVER,
            address,
            token_file,
            certificates.ca_file,
            json.dumps(catalog),
            json.dumps(settings),
        ]
        done = run_driver(arguments, python=cluster.python)

    told = json.loads(done.stdout.strip().splitlines()[-1])
    all_rows = rows + 50
    assert told["landed"] == {"outcome": "landed", "rows": rows}, told["messages"]
    assert told["audit"]["passed"] and told["audit"]["rows"] == rows, told["audit"]["text"]
    assert told["scanned"] == 50 and told["to_spark"] == all_rows
    assert told["log"]["rows"] == all_rows and told["log"]["partitions"] >= 4
    assert told["ids"] == sum(range(rows)) + sum(1_000_000 + each for each in range(50))
    assert told["view"] == all_rows and told["stream"] == all_rows
    assert "UnknownTopic" in told["lake"] and "no topic 'secrets'" in told["others"]
    assert not told["token_shown"]
    assert token_file.read_text().strip() not in server.output()
