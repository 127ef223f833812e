"""Tokens and certificates: who may call, kept in the data directory as `tokens.json`, made and revoked by the CLI.

    {"format": 1, "principals": [{"name": "loader", "digest": "9f86d0…", "certificate": "",
                                  "grants": ["write:orders.*"], "created_us": 1790000000000000, "expires_us": null}]}

    digest       SHA-256 of the token, in hex; "" where the principal has none
    certificate  the identity of a client certificate (tls.py says which part of it that is); "" for none

TOKEN    `hw_` and 256 random bits.  Nobody can guess one or try them out, so a plain hash is what is kept: the slow and
         salted hashes that passwords need would add nothing here, and cost each call.  It is shown once, when it is
         made, and is nowhere afterwards.
WRITE    Aside, synced, renamed, the directory synced; one writer at a time, by the lock `tokens.lock`.
LOOK     A server reads the file again every second, so a new or revoked token counts within two.  A file that can no
         longer be read is believed for a minute; then nobody is let in, because a token may have been revoked since.
PROMISE  Deny by default: no file, nobody.  A damaged file, or one of a later version, lets nobody in, by name.
         No token, and no digest of one, is in any message or log.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import (
    Conflict,
    CorruptData,
    HeadwaterError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
    UnknownFormat,
)
from headwater.server.access import Access, Grant, OpenAccess, Principal, parse_grant
from headwater.server.settings import ServerSettings
from headwater.storage.files import Files, LockHeld

FILE = "tokens.json"
LOCK = "tokens.lock"
TEMPORARY = ".tmp"
FORMAT = 1
TOKEN_PREFIX = "hw_"
"""By which a scanner of sources and logs can tell a token."""
TOKEN_BYTES = 32
PRINCIPALS_MAX = 10_000
HEADER_CHARACTERS_MAX = 1_000
LOOK_S = 1.0
BELIEVED_S = 60.0

logger = logging.getLogger("headwater.server")

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._@-]{0,99}")


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A principal, as the file has it."""

    name: str
    digest: str
    certificate: str
    grants: tuple[str, ...]
    created_us: int
    expires_us: int | None = None

    def expired(self, now_us: int) -> bool:
        return self.expires_us is not None and now_us >= self.expires_us


class _File(msgspec.Struct, frozen=True):
    format: int
    principals: tuple[Kept, ...] = ()


# The file -------------------------------------------------------------------------------------------------------------


def read_principals(files: Files) -> tuple[Kept, ...]:
    """Every principal; none where there is no file.  CorruptData or UnknownFormat where it cannot be understood."""
    try:
        file = files.open(FILE)
    except FileNotFoundError:
        return ()
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        # The version first: a later one may have fields that this one does not know.
        if msgspec.json.decode(data, type=_Format).format != FORMAT:
            raise UnknownFormat(f"{FILE} was written by a later version of Headwater: use that one")
        found = msgspec.json.decode(data, type=_File).principals
        for each in found:
            _grants(each)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidRequest) as error:
        raise CorruptData(
            f"{FILE} cannot be read, so nobody is let in: put it back from a backup, or remove it and make new tokens: "
            f"{error}"
        ) from error
    return found


class _Format(msgspec.Struct):
    format: int


def _grants(kept: Kept) -> tuple[Grant, ...]:
    return tuple(parse_grant(each) for each in kept.grants)


def _write(files: Files, principals: tuple[Kept, ...]) -> None:
    data = msgspec.json.format(msgspec.json.encode(_File(FORMAT, principals)), indent=1) + b"\n"
    temporary = FILE + TEMPORARY
    try:
        file = files.create(temporary)
    except FileExistsError:
        # Somebody was killed while writing; the lock is ours, so nobody is at it now.
        files.unlink(temporary)
        file = files.create(temporary)
    try:
        file.append([data])
        file.sync_all()
    finally:
        file.close()
    files.rename(temporary, FILE)
    files.sync_directory("")


@contextmanager
def _changing(files: Files) -> Iterator[None]:
    files.make_directory("")
    try:
        lock = files.lock(LOCK, f"pid {os.getpid()}")
    except LockHeld as error:
        raise Conflict("somebody else is changing the tokens: run the command again", holder=error.holder) from error
    try:
        yield
    finally:
        lock.release()


# Making and revoking --------------------------------------------------------------------------------------------------


def create(
    files: Files,
    name: str,
    grants: tuple[Grant, ...],
    *,
    certificate: str = "",
    expires_s: float | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
) -> str:
    """Make a principal known, durably, and return its token: the only copy there will be.  With `certificate` it has
    none, and "" is returned."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest("a principal's name is 1 to 100 of a-z A-Z 0-9 . _ @ - and begins with a letter or digit")
    if not grants:
        raise InvalidRequest("a token that allows nothing is of no use: give --allow RIGHT:TOPIC")
    token = "" if certificate else new_token(entropy)
    now_us = (clock if clock is not None else SystemClock()).now_us()
    kept = Kept(
        name,
        digest_of(token) if token else "",
        certificate,
        tuple(str(each) for each in dict.fromkeys(grants)),
        now_us,
        None if expires_s is None else now_us + round(expires_s * 1e6),
    )
    with _changing(files):
        others = read_principals(files)
        if any(each.name == name for each in others):
            raise InvalidRequest(f"there is a token of this name: revoke it first, or take another name: {name}")
        if certificate and any(each.certificate == certificate for each in others):
            raise InvalidRequest(f"this certificate is another principal's: {certificate}")
        if len(others) >= PRINCIPALS_MAX:
            raise InvalidRequest("there are too many tokens: revoke some", tokens_max=PRINCIPALS_MAX)
        _write(files, (*others, kept))
    return token


def revoke(files: Files, name: str) -> None:
    """Forget a principal, durably; a server that runs lets it in no more within two seconds."""
    with _changing(files):
        before = read_principals(files)
        after = tuple(each for each in before if each.name != name)
        if len(after) == len(before):
            raise InvalidRequest(f"there is no token named {name}: `headwater token list` shows which there are")
        _write(files, after)


def new_token(entropy: Entropy = system_entropy) -> str:
    return TOKEN_PREFIX + base64.urlsafe_b64encode(entropy(TOKEN_BYTES)).rstrip(b"=").decode()


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Letting in -----------------------------------------------------------------------------------------------------------


class _Known:
    """What one reading of the file said."""

    def __init__(self, principals: tuple[Kept, ...], read_s: float) -> None:
        self.read_s = read_s
        self.principals = principals
        self.by_digest = {each.digest: (each, _principal(each)) for each in principals if each.digest}
        self.by_certificate = {each.certificate: (each, _principal(each)) for each in principals if each.certificate}


def _principal(kept: Kept) -> Principal:
    return Principal(kept.name, _grants(kept))


def open_access(settings: ServerSettings, files: Files, *, clock: Clock | None = None) -> Access:
    """What these settings ask of whoever calls."""
    if settings.tokens or (settings.tls is not None and settings.tls.client_ca_file is not None):
        return TokenAccess(files, clock=clock)
    return OpenAccess()


class TokenAccess:
    """Access by what `tokens.json` says.  With `look_s` a thread reads it again and again; else only `look` does."""

    def __init__(self, files: Files, *, clock: Clock | None = None, look_s: float | None = LOOK_S) -> None:
        self._files = files
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._known = _Known(read_principals(files), self._clock.monotonic_s())
        self._trouble = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        if look_s is not None:
            self._thread = threading.Thread(
                target=self._keep_looking, args=(look_s,), name="headwater-tokens", daemon=True
            )
            self._thread.start()

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        known = self._known
        if self._clock.monotonic_s() - known.read_s > BELIEVED_S:
            raise Unavailable(f"who may call is not known any more: {FILE} could not be read for a minute")
        if authorization is not None:
            return self._by_token(known, authorization)
        if certificate:
            found = known.by_certificate.get(certificate)
            if found is None or self._expired(found[0]):
                raise Unauthenticated(
                    "the certificate is nobody's here: `headwater token create NAME --certificate IDENTITY` says whose "
                    "it is",
                    certificate=certificate[:200],
                )
            return found[1]
        raise Unauthenticated(
            "this server asks who calls: name a file with a token, by token_file= in the address or by "
            "HEADWATER_TOKEN_FILE, or send the header `Authorization: Bearer TOKEN`"
        )

    def _by_token(self, known: _Known, authorization: str) -> Principal:
        scheme, _, token = authorization[:HEADER_CHARACTERS_MAX].partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token.isascii() and len(authorization) <= HEADER_CHARACTERS_MAX:
            digest = digest_of(token)
            # Whoever tries tokens out cannot steer their digests towards one that is kept, so how long the look-up
            # takes tells nothing; the comparison after it takes as long for any two.
            found = known.by_digest.get(digest)
            if found is not None and hmac.compare_digest(found[0].digest, digest) and not self._expired(found[0]):
                return found[1]
        raise Unauthenticated(
            "the token is not known here: it was revoked, it has expired, or it never was one; ask whoever runs the "
            "server for another"
        )

    def _expired(self, kept: Kept) -> bool:
        return kept.expired(self._clock.now_us())

    def look(self) -> None:
        """Read the file again; what cannot be read changes nothing until it has lasted too long."""
        try:
            principals = read_principals(self._files)
        except (HeadwaterError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error("%s could not be read; nobody is let in after %d s of this: %s", FILE, BELIEVED_S, error)
            return
        if self._trouble:
            self._trouble = ""
            logger.info("%s can be read again", FILE)
        now_s = self._clock.monotonic_s()
        if principals == self._known.principals:
            self._known.read_s = now_s
        else:
            self._known = _Known(principals, now_s)

    def _keep_looking(self, look_s: float) -> None:
        while not self._ended.wait(look_s):
            self.look()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
