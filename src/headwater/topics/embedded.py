"""The engine of a log in this process, with all the verbs that Log and Topic ask for."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.metadata.operations import TopicRecord
from headwater.topics.answers import GroupDescription, Status, TopicDescription, TopicStatus
from headwater.topics.describing import describe, describe_groups, describe_topic, describe_topics
from headwater.topics.engine import Engine


class EmbeddedEngine(Engine):
    """An engine that also says what there is."""

    def check_open(self) -> None:
        self.metadata()

    def topics(self) -> Sequence[TopicRecord]:
        return list(self.metadata().topics.values())

    def topic_named(self, name: str) -> TopicRecord | None:
        return self.metadata().topic_named(name)

    def describe_topic(self, number: int) -> TopicDescription:
        return describe_topic(self, self.topic_numbered(number))

    def describe_topics(self) -> list[TopicStatus]:
        return describe_topics(self)

    def describe_groups(self) -> list[GroupDescription]:
        return describe_groups(self)

    def status(self) -> Status:
        return describe(self, self.directory)
