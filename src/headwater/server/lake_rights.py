"""Who may look at a topic for a landing, an audit or a view: whoever may read it, or land it."""

from __future__ import annotations

from headwater.errors import NotAllowed
from headwater.metadata.operations import TopicRecord
from headwater.server.access import Principal, check
from headwater.server.served import Served


def may_look(principal: Principal, topic: str) -> bool:
    return principal.may("read", topic) or principal.may("land", topic)


def topic_to_look_at(served: Served, principal: Principal, topic_id: bytes) -> TopicRecord:
    """The topic of this id; UnknownTopic where the principal may not know of it, NotAllowed where it may not look."""
    topic = served.by_id(principal, topic_id, None)
    if not may_look(principal, topic.name):
        check(principal, "land", topic.name)
    return topic


def topics_to_look_at(served: Served, principal: Principal) -> list[TopicRecord]:
    return [each for each in served.known(principal) if may_look(principal, each.name)]


def check_looks(principal: Principal) -> None:
    """What is of no topic is for whoever may look at some."""
    if not principal.may_any("read"):
        check_lands(principal)


def check_lands(principal: Principal) -> None:
    if not principal.may_any("land"):
        raise NotAllowed(
            f"{principal.name} lands no topic; a token or a certificate with land:TOPIC may", principal=principal.name
        )
