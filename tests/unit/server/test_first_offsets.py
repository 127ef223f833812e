"""First offsets that are remembered are those that the engine would give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.api.opening import Opened, open_engine
from headwater.server.first_offsets import FirstOffsets
from headwater.settings import LogSettings, Settings
from headwater.topics.topic import NewTopic


@pytest.fixture
def opened() -> Iterator[Opened]:
    settings = Settings(log=LogSettings(deletion_grace_s=0.0), upkeep_interval_s=0.0)
    found = open_engine(":memory:", settings=settings)
    yield found
    found.engine.close()
    found.lake.close()


def test_a_first_offset_is_asked_for_once_and_again_when_rows_have_gone(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened.engine
    number = engine.create_topics([NewTopic("orders", {"id": int}, retention_bytes=1)])[0].number
    first_offsets = FirstOffsets(engine)
    asked = []
    ask = engine.first_offset

    def first_offset(topic_number: int, partition: int) -> int:
        asked.append(partition)
        return ask(topic_number, partition)

    monkeypatch.setattr(engine, "first_offset", first_offset)

    assert [first_offsets.of(number, 0) for _ in range(2)] == [0, 0]
    assert len(asked) == 2, "a partition without rows is not remembered"
    for _ in range(3):
        engine.append(number, [{"id": 1}])
    assert [first_offsets.of(number, 0) for _ in range(3)] == [0, 0, 0]
    assert len(asked) == 3

    engine.shard.log.roll()
    engine.append(number, [{"id": 2}])
    engine.checkpoint()
    engine.shard.log.roll()
    engine.append(number, [{"id": 3}])
    engine.checkpoint()
    engine.cleanup()

    assert first_offsets.of(number, 0) == ask(number, 0) > 0
