"""Who asks, and what they may do.

    right   over a topic lets a principal
    read    read its rows and views, its offsets and groups, and commit offsets of groups
    write   append to it, alone and in transactions; what it refuses goes to `<topic>.rejected` by the same right
    land    read it for landings and audits, and record in the ledger what has landed
    admin   make, change and delete it

A grant is a right and a pattern: `read:orders` is one topic, `read:orders.*` is every topic whose name begins with
`orders.`, `read:*` is every topic.  Rights are words of their own: none holds another.

PROMISE  What no grant allows is refused.  A topic that a principal has no right over is UnknownTopic to it, in the very
         words with which a topic that is not there is refused.
         What a server as a whole is asked for (its status, a clean-up, a checkpoint) needs the right over every topic.
NOT HERE Where tokens are kept and how they are told apart: tokens.py.  Which right a call needs: protocol/calls.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, get_args

from headwater.errors import InvalidRequest, NotAllowed, UnknownTopic
from headwater.protocol.streams import Right
from headwater.topics.names import check_topic_name

RIGHTS: tuple[Right, ...] = get_args(Right)
ALL_TOPICS = "*"


@dataclass(frozen=True)
class Grant:
    """One right over one topic, or over all whose names begin alike."""

    right: Right
    pattern: str

    def __str__(self) -> str:
        return f"{self.right}:{self.pattern}"

    def covers(self, topic: str) -> bool:
        if self.pattern.endswith(ALL_TOPICS):
            return topic.startswith(self.pattern[:-1])
        return topic == self.pattern


def parse_grant(text: str) -> Grant:
    """`read:orders`, `write:orders.*`, `admin:*`; InvalidRequest for anything else."""
    word, colon, pattern = text.partition(":")
    right = next((each for each in RIGHTS if each == word), None)
    if right is None or not colon:
        raise InvalidRequest(
            f"a grant is RIGHT:TOPIC, with {', '.join(RIGHTS[:-1])} or {RIGHTS[-1]} as the right, and a topic, or the "
            "beginning of its name and *",
            got=text[:200],
        )
    name = pattern.removesuffix(ALL_TOPICS)
    if name or not pattern:
        check_topic_name(name)
    return Grant(right, pattern)


@dataclass(frozen=True)
class Principal:
    """Who asks.  Two are the same if their names are: rights may have changed in between."""

    name: str
    grants: tuple[Grant, ...] = ()

    def may(self, right: Right, topic: str) -> bool:
        return any(grant.right == right and grant.covers(topic) for grant in self.grants)

    def may_any(self, right: Right) -> bool:
        """The right over some topic, whether it is there or not."""
        return any(grant.right == right for grant in self.grants)

    def may_all(self, right: Right) -> bool:
        """The right over every topic: what is asked of the server as a whole needs it."""
        return any(grant.right == right and grant.pattern == ALL_TOPICS for grant in self.grants)

    def knows(self, topic: str) -> bool:
        """Any right over it."""
        return any(grant.covers(topic) for grant in self.grants)


EVERYBODY = Principal("everybody", tuple(Grant(right, ALL_TOPICS) for right in RIGHTS))
"""Whoever reaches a server that asks for no token; listening.py keeps such a server on loopback."""


class Access(Protocol):
    """Who is who."""

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        """The principal of this header (`Bearer TOKEN`), else of this certificate's identity; Unauthenticated."""
        ...

    def close(self) -> None: ...


class OpenAccess:
    """Everybody may do everything: for a server on loopback that was not told to ask for tokens."""

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        return EVERYBODY

    def close(self) -> None:
        pass


def check(principal: Principal, right: Right, topic: str, *, asked: str | None = None) -> None:
    """NotAllowed; UnknownTopic where the principal may not even know of the topic.  `topic` is the name of the topic
    that was found, `asked` the name by which it was asked for, if it was not by its id: no other name is given away."""
    if principal.may(right, topic):
        return
    if not principal.knows(topic):
        raise unknown_topic(asked)
    raise _not_allowed(principal, right, topic)


def check_known(principal: Principal, topic: str, *, asked: str | None = None) -> None:
    """UnknownTopic unless the principal has some right over the topic."""
    if not principal.knows(topic):
        raise unknown_topic(asked)


def check_making(principal: Principal, topic: str) -> None:
    """NotAllowed unless the principal may make a topic of this name, whether one is there or not."""
    if not principal.may("admin", topic):
        raise _not_allowed(principal, "admin", topic)


def check_all(principal: Principal, right: Right, what: str) -> None:
    """NotAllowed unless the principal has the right over every topic; `what` is what was asked of the server."""
    if not principal.may_all(right):
        raise NotAllowed(
            f"{principal.name} may not ask for {what}; a token or a certificate with {right}:{ALL_TOPICS} may",
            principal=principal.name,
            right=right,
        )


def unknown_topic(asked: str | None = None) -> UnknownTopic:
    """There is no such topic, or none for this principal: nobody can tell the two apart."""
    if asked is None:
        return UnknownTopic("the topic was deleted, or there never was one of this id")
    # The words of topics/engine.py.
    return UnknownTopic(
        f"there is no topic {asked!r}: create it by giving its schema (hw.BYTES for bytes)", topic=asked
    )


def _not_allowed(principal: Principal, right: Right, topic: str) -> NotAllowed:
    return NotAllowed(
        f"{principal.name} may not {right} {topic}; a token or a certificate with {right}:{topic} may",
        principal=principal.name,
        right=right,
        topic=topic,
    )
