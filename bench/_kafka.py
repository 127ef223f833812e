"""A Kafka of a bench's own on loopback: one broker, KRaft, with its data below the bench's directory.

    with kafka(directory) as broker:
        broker.create_topic("events", fsync=True)      flush.messages=1: each append of the broker's is synced
        {"bootstrap.servers": broker.address}          for any client

The jars come by Maven, once, into `HEADWATER_CACHE` (or ~/.cache/headwater).  The broker's own settings are Kafka's
defaults, but for what one broker alone cannot have (replicas), and for the wait before a group's first assignment.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench._maven import Jar, jars

VERSION = "4.2.0"
HEAP = "1g"
START_S_MAX = 90.0
CREATE_S_MAX = 300.0
PARTITIONS_AT_ONCE = 2_000
STOP_S_MAX = 30.0
CLUSTER_ID = "AAAAAAAAQACAAAAAAAAAAA"
NEEDED = {
    "confluent_kafka": "confluent-kafka==2.16.*",
    "aiokafka": "aiokafka==0.14.*",
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
}
"""Modules that only this bench needs, and what to install for each."""

_JARS = (Jar("org.apache.kafka", "kafka_2.13", VERSION), Jar("org.slf4j", "slf4j-simple", "1.7.36"))


@dataclass(frozen=True)
class Kafka:
    """A broker that runs while its block does."""

    address: str
    pid: int

    def create_topic(self, name: str, *, fsync: bool, partitions: int = 1) -> None:
        """A topic whose partitions all have a leader; with `fsync` the broker syncs before it acknowledges, as ours."""
        from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

        config = {"flush.messages": "1"} if fsync else {}
        admin = AdminClient({"bootstrap.servers": self.address})
        # The controller refuses an operation of 10,000 records, so that many partitions are made in steps.
        made = min(partitions, PARTITIONS_AT_ONCE)
        admin.create_topics([NewTopic(name, made, 1, config=config)])[name].result(CREATE_S_MAX)
        while made < partitions:
            made = min(partitions, made + PARTITIONS_AT_ONCE)
            admin.create_partitions([NewPartitions(name, made)], request_timeout=CREATE_S_MAX)[name].result(
                CREATE_S_MAX
            )
        end_s = time.monotonic() + CREATE_S_MAX
        while not _all_led(admin.list_topics(name, timeout=CREATE_S_MAX).topics[name].partitions, partitions):
            assert time.monotonic() < end_s, f"not every partition of {name} had a leader in {CREATE_S_MAX} s"
            time.sleep(0.05)


def _all_led(described: Mapping[int, Any], partitions: int) -> bool:
    return len(described) == partitions and all(each.leader >= 0 for each in described.values())


def check_installed() -> None:
    """End, and say what to install, where something that the bench compares with is missing."""
    missing = [wanted for module, wanted in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise SystemExit(f"this bench compares with Kafka, and needs its clients: pip install {' '.join(missing)}")
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise SystemExit(f"this bench starts Kafka {VERSION}, and needs {program}: it is not on the path")


@contextmanager
def kafka(directory: Path) -> Iterator[Kafka]:
    """A new broker whose data is below the directory; it ends with the block."""
    lib = kafka_jars()
    directory.mkdir(parents=True)
    port, controller_port = free_port(), free_port()
    properties = directory / "server.properties"
    properties.write_text(_properties(directory / "data", port, controller_port), encoding="utf-8")
    # Logging at INFO costs the broker time at each start of a segment; warnings are what a person would look for.
    java = ["java", f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{lib}/*"]
    _format([*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)])
    told = directory / "server.log"
    with told.open("wb") as output:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(properties)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        address = f"127.0.0.1:{port}"
        if not _answers(address, process):
            raise AssertionError(f"Kafka did not start: {told.read_text(errors='replace')[-4000:]}")
        yield Kafka(address, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S_MAX)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _format(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=START_S_MAX)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether the broker has begun to serve, and not only to listen."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    host, _, port = address.rpartition(":")
    begun = time.monotonic()
    while time.monotonic() - begun < START_S_MAX and process.poll() is None:
        try:
            # A client that asks too early would tell stderr of every refusal.
            socket.create_connection((host, int(port)), timeout=5).close()
            found = AdminClient({"bootstrap.servers": address}).list_topics(timeout=5)
            if found.brokers:
                return True
        except (OSError, KafkaException):
            pass  # not yet
        time.sleep(0.1)
    return False


def _properties(data: Path, port: int, controller_port: int) -> str:
    return "\n".join(
        (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            "controller.listener.names=CONTROLLER",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={data}",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "group.initial.rebalance.delay.ms=0",
            "auto.create.topics.enable=false",
            "",
        )
    )


def kafka_jars() -> Path:
    """The folder of Kafka's jars; fetched if they are not there yet."""
    return jars(f"kafka-{VERSION}", _JARS)
