"""What an S3 store's refusal means: from the text of the client's error to one of five meanings.

The client (obstore) sorts errors into classes of its own, and not all of them mean what they are called: it calls a 409
"already exists", where S3 means "another request was under way, try again", and a bucket that is not there
"not found", which is also the word for an absent object.  The status and S3's own code say what happened; both stand in
the text, the status before anything that the store wrote.

status, code                                    meaning
412                                             UNMET    the condition of the request did not hold
404 NoSuchKey                                   ABSENT   the name holds nothing
416                                             BEYOND   the range begins at or after the object's end
409, 408, 425, 429, 5xx but 501, no status,     UNSURE   it may have been done, or not: ask again
400 of a damaged request, or of too many
all else: 400, 401, 403, 404 of another kind,   REFUSED  asking again changes nothing: somebody has to change the
501, 3xx, names that this store cannot hold              address, the credentials or the store

PROMISE  UNMET and ABSENT are given only for an answer that says exactly that.
NOT HERE Requests: storage/s3.py.  What the meanings are called for each verb: there too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_STATUS = re.compile(r"status code: (\d{3})\b")
_CODE = re.compile(r"<Code>\s*([\w.]+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*(.*?)\s*</Message>", re.DOTALL)

# The client writes the whole tree of causes after this line; what stands before it is for people.
_CAUSES = "\n\nDebug source:"

_ASK_AGAIN = frozenset({408, 409, 425, 429})
_NEVER = frozenset({501})

# A 400 that a broken connection or too many requests have made, not a wrong one.
_PASSING = frozenset({"BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"})
_PASSING_WORD = "Throttling"

# A store over a file system cannot hold both "a" and "a/b"; it says so with a 409, and will say so again.
_NAMES_THAT_CLASH = frozenset({"ExistingObjectIsDirectory", "ObjectParentIsFile"})

# Errors of the client itself, which sent nothing or was sent elsewhere.
_WRONG_ADDRESS = ("Received redirect", "builder error")


class Meaning(Enum):
    """What became of a request that did not simply succeed."""

    UNMET = "the condition of the request did not hold"
    ABSENT = "the name holds nothing"
    BEYOND = "the range begins at or after the object's end"
    UNSURE = "the store did not say what became of it"
    REFUSED = "asking again changes nothing"


@dataclass(frozen=True)
class Answer:
    """The facts in an error's text; status 0 is: the store did not answer."""

    status: int
    code: str
    text: str

    @property
    def meaning(self) -> Meaning:
        if not self.status:
            return Meaning.REFUSED if any(word in self.text for word in _WRONG_ADDRESS) else Meaning.UNSURE
        if self.status == 412:
            return Meaning.UNMET
        if self.status == 404 and self.code == "NoSuchKey":
            return Meaning.ABSENT
        if self.status == 416:
            return Meaning.BEYOND
        if self.code in _PASSING or _PASSING_WORD in self.code:
            return Meaning.UNSURE
        if self.code in _NAMES_THAT_CLASH or self.status in _NEVER:
            return Meaning.REFUSED
        if self.status in _ASK_AGAIN or self.status >= 500:
            return Meaning.UNSURE
        return Meaning.REFUSED

    @property
    def before_the_store(self) -> bool:
        """The client was still looking for credentials, which it asks the machine's metadata service for in the end."""
        return "/latest/api/token" in self.text or "/latest/meta-data" in self.text


def read_answer(error_text: str) -> Answer:
    shown, _, causes = error_text.partition(_CAUSES)
    status = _STATUS.search(shown)
    code = _CODE.search(shown) if status else None
    if status and code:
        message = _MESSAGE.search(shown)
        text = f"{status[1]} {code[1]}" + (f": {message[1]}" if message else "")
    else:
        text = f"{shown.strip()}{_innermost(causes)}"
    return Answer(int(status[1]) if status else 0, code[1] if code else "", text)


def _innermost(causes: str) -> str:
    """What the client says last, and deepest, about a request that got no answer: "Connection refused"."""
    said = re.findall(r'(?:message|error): "([^"]+)"|\b(TimedOut|ConnectionReset|IncompleteMessage)\b', causes)
    words = [next(part for part in found if part) for found in said]
    return f" ({words[-1]})" if words else ""
