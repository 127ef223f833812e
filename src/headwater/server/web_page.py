"""The web page over HTTP: its files for anybody, and its document for whoever may see what is in it.

    GET /, /page.css, /page.js     the page itself: it holds nothing of the log, and nobody is asked who they are
    GET /v1/page                   ?filter= &sort=[-]name|rows|bytes|rows_per_s|lag_s &from=

COST     A document is worked out in a thread of its own, one at a time, from a look that all share; the same question
         of the same principal is answered with the same bytes until the next look.  Another thread looks every few
         seconds, so that there is a history when somebody comes.
PROMISE  A principal is shown what it has a right over: a topic with any right, its groups with `read`, its landings
         with `read` or `land`, the log's own affairs with `admin:*`, as over Flight.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import msgspec
from starlette.requests import Request

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.lake.ledger import Ledger
from headwater.page.document import SORTS, Question, Sight, page_document
from headwater.page.history import EVERY_S
from headwater.page.ledger_tail import PIECE_BYTES, LedgerTail
from headwater.page.looking import LOOK_S, Looking, Seen
from headwater.server.access import Principal
from headwater.server.health import Health
from headwater.server.lake_rights import may_look
from headwater.server.served import Served

logger = logging.getLogger("headwater.http")

AGAIN_S = 2.0
"""A page asks again so soon."""
ANSWERS_KEPT = 64
FILTER_MAX = 249
_PARAMETERS = ("filter", "sort", "from")


class WebPage:
    """Safe for threads."""

    def __init__(self, served: Callable[[], Served | None], health: Health, clock: Clock | None = None) -> None:
        self._served = served
        self._health = health
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._lock = threading.Lock()
        self._looking: tuple[Served, Looking] | None = None
        self._answers: OrderedDict[tuple[Principal, Question], bytes] = OrderedDict()
        self._answered = 0
        """Of which look the answers are."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="headwater-http-page", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Nobody asks any more; twice, or before it was begun, is nothing."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def document(self, served: Served, principal: Principal, question: Question) -> bytes:
        """The document for this principal, as JSON."""
        with self._lock:
            looking = self._looking_at(served)
            look = looking.now()
            if look.number != self._answered:
                self._answers.clear()
                self._answered = look.number
            # A principal is its name and its grants: whose rights have changed is asked anew.
            asked = (principal, question)
            found = self._answers.get(asked)
            if found is None:
                content = page_document(
                    look, looking.points, _sight(principal), question, source="server", again_s=AGAIN_S
                )
                found = self._answers[asked] = msgspec.json.encode(content)
                if len(self._answers) > ANSWERS_KEPT:
                    self._answers.popitem(last=False)
            return found

    def _looking_at(self, served: Served) -> Looking:
        if self._looking is None or self._looking[0] is not served:
            self._looking = served, Looking(_Seeing(served, self._health).see, self._clock)
            self._answered = 0
        return self._looking[1]

    def _watch(self) -> None:
        """Look every few seconds, as long as there is a log."""
        wait_s = LOOK_S
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S
            served = self._served()
            if served is None or served.stopping.is_set():
                continue
            try:
                with self._lock:
                    looking = self._looking_at(served)
                looking.now()
            except (HeadwaterError, OSError) as error:
                # There is a gap in the history: whoever asks for the page is told why.
                logger.info("the web page has no sample: %s", error)
            except Exception:  # the history must not end by a bug of a look, which the log then names
                logger.exception("a look for the web page ended in a bug")


class _Seeing:
    """What is to be seen of one served log."""

    def __init__(self, served: Served, health: Health) -> None:
        self._served = served
        self._health = health
        self._tail: LedgerTail | None = None

    def see(self) -> Seen:
        served = self._served
        tail, trouble = self._read_tail()
        status = served.status()
        if trouble and trouble not in status.notes:
            status = replace(status, notes=[*status.notes, trouble])
        return Seen(
            status,
            landings=[] if tail is None else tail.landings(),
            audits=[] if tail is None else tail.audits(),
            # The ledger knows topics that were deleted too: what is shown is of those that are there.
            names={each.topic_id.hex(): each.name for each in served.engine.metadata().topics.values()},
            space=self._health.space(),
            not_ready=self._health.not_ready(),
        )

    def _read_tail(self) -> tuple[LedgerTail | None, str]:
        """The latest of the ledger; where it cannot be read, what was known of it, and why."""
        ledger = None if self._served.lake is None else self._served.lake.ledger
        if not isinstance(ledger, Ledger):
            return None, ""
        try:
            if self._tail is None:
                self._tail = LedgerTail(lambda lsn: ledger.page(lsn, PIECE_BYTES), end_lsn=ledger.state().lsn)
            self._tail.read()
        except (HeadwaterError, OSError) as error:
            # The words of lake/landing.py, so that it is told once.
            return self._tail, f"the ledger cannot be read: {error}"
        return self._tail, ""


def _sight(principal: Principal) -> Sight:
    everything = principal.may_all("admin")
    if everything:
        return Sight(principal.name, everything=True, knows=_any, reads=_any, looks=_any)
    return Sight(
        principal.name,
        everything=False,
        knows=principal.knows,
        reads=lambda topic: principal.may("read", topic),
        looks=lambda topic: may_look(principal, topic),
    )


def _any(topic: str) -> bool:
    return True


def asked_of(request: Request) -> Question:
    """What the query asks for; InvalidRequest says what could be."""
    parameters = request.query_params.multi_items()
    for name, _ in parameters:
        if name not in _PARAMETERS:
            raise InvalidRequest(f"there is no parameter {name[:60]!r}: there are {', '.join(_PARAMETERS)}")
    given = dict(parameters)
    if len(given) < len(parameters):
        raise InvalidRequest("a parameter stands twice in the query")
    sort = given.get("sort", "name")
    if sort.removeprefix("-") not in SORTS:
        raise InvalidRequest(f"sort is {', '.join(SORTS)}, with - before it for falling", got=sort[:60])
    start = given.get("from", "0")
    if not (start.isascii() and start.isdecimal() and len(start) < 10):
        raise InvalidRequest("from is a whole number", got=start[:60])
    wanted = given.get("filter", "")
    if len(wanted) > FILTER_MAX:
        raise InvalidRequest(f"a filter has at most {FILTER_MAX} characters")
    return Question(wanted, sort.removeprefix("-"), sort.startswith("-"), int(start))
