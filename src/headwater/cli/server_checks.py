"""What a client can see of a server: does it answer, is it the one that was meant, what may this caller do there.

TLS      The certificate is looked at twice: by Flight, which refuses a wrong one, and here for how long it is good.
CLOCK    The server says its time; half of the way there and back is taken off.
NOT HERE The machine that the server runs on: `headwater check` is run there, with the data directory.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from headwater.cli.checks import Checked, Verdict, check_secret, check_status, check_versions
from headwater.cli.output import counted
from headwater.client.connecting import connect_to
from headwater.client.connection import Connection
from headwater.clock import Clock
from headwater.errors import HeadwaterError, NotAllowed, Unauthenticated
from headwater.protocol.address import Address, parse_address
from headwater.protocol.calls import HELLO, STATUS, TOPICS_STATUS, Nothing
from headwater.protocol.codec import VERSION
from headwater.settings import ClientSettings

DAY_S = 86_400.0
GOOD_S_MIN = 14 * DAY_S
CLOCK_S_MAX = 2.0
ANSWER_S = 5.0


def check_server(data: str, clock: Clock) -> Iterator[Checked]:
    """All that can be seen from here."""
    yield from check_versions()
    address = parse_address(data)
    yield from _check_files(address)
    if address.tls:
        for host, port in address.hosts:
            yield check_certificate(address, host, port, clock)
    connection = connect_to(data, settings=ClientSettings(retry_s=ANSWER_S), clock=clock)
    try:
        yield from _check_answers(connection, clock)
    except Unauthenticated as error:
        advice = "give a token that is good: token_file=FILE in the address, or HEADWATER_TOKEN_FILE"
        yield Checked("authentication", Verdict.FAIL, error.message, advice)
    except HeadwaterError as error:
        advice = "is it started, is the port right, does a firewall stand between? hws:// is for TLS, hw:// for none"
        yield Checked("reachable", Verdict.FAIL, f"{type(error).__name__}: {error}", advice)
    finally:
        connection.close()


def _check_files(address: Address) -> Iterator[Checked]:
    if address.token_file is not None:
        yield check_secret(address.token_file, "token file")
    if address.key_file is not None:
        yield check_secret(address.key_file, "key file")


def _check_answers(connection: Connection, clock: Clock) -> Iterator[Checked]:
    began_s, asked_us = clock.monotonic_s(), clock.now_us()
    hello = connection.call(HELLO, Nothing())
    took_s = clock.monotonic_s() - began_s
    which = f"headwater {hello.server}, shard {hello.shard}, epoch {hello.epoch}"
    yield Checked("reachable", Verdict.PASS, f"{which}, answered in {took_s * 1000:.0f} ms")
    spoken = ", ".join(map(str, hello.versions))
    if VERSION in hello.versions:
        yield Checked("protocol", Verdict.PASS, f"version {VERSION} of {spoken}")
    else:
        advice = "use a client or a server of another release"
        yield Checked("protocol", Verdict.FAIL, f"this client speaks {VERSION}, the server {spoken}", advice)
    if hello.time_us:
        yield check_difference((hello.time_us - asked_us) / 1e6 - took_s / 2)
    yield from _check_rights(connection, hello.principal)


def check_difference(ahead_s: float) -> Checked:
    """The server's clock against the one here."""
    detail = f"the server's is {abs(ahead_s):,.1f} s {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) > CLOCK_S_MAX:
        advice = "set both clocks right (NTP): reads by time and lags are told by the server's"
        return Checked("clock", Verdict.NOTE, detail, advice)
    return Checked("clock", Verdict.PASS, detail)


def _check_rights(connection: Connection, principal: str) -> Iterator[Checked]:
    known = connection.call(TOPICS_STATUS, Nothing())
    detail = f"as {principal!r}: knows {counted(len(known), 'topic')}"
    try:
        found = connection.call(STATUS, Nothing())
    except NotAllowed:
        advice = "nothing needs to be done, unless it should administer: headwater token create, with admin:*"
        yield Checked("rights", Verdict.NOTE, f"{detail}, and may not see the whole log", advice)
        return
    yield Checked("rights", Verdict.PASS, f"{detail}, and may administer all of them")
    yield from check_status(found)


def check_certificate(address: Address, host: str, port: int, clock: Clock) -> Checked:
    """How long the server's certificate is good, and whether this caller believes it."""
    what = f"{host}:{port}"
    try:
        context = ssl.create_default_context(cafile=address.ca_file)
        if address.cert_file is not None:
            context.load_cert_chain(address.cert_file, address.key_file)
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, port), timeout=ANSWER_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert() or {}
            version = secured.version()
    except ssl.SSLError as error:
        advice = "name the CA that signed it with ca_file=, or have the server show a certificate for this name"
        return Checked("TLS", Verdict.FAIL, f"{what}: {error.reason or error}", advice)
    except OSError as error:
        return Checked("TLS", Verdict.FAIL, f"{what}: {error.strerror or error}", "is the server started?")
    ends = str(shown.get("notAfter", ""))
    left_s = ssl.cert_time_to_seconds(ends) - clock.now_us() / 1e6
    detail = f"{what}: {version}, the certificate is good until {ends}, {left_s / DAY_S:,.0f} days"
    if left_s < GOOD_S_MIN:
        return Checked("TLS", Verdict.NOTE, detail, "renew it, and start the server again with it")
    return Checked("TLS", Verdict.PASS, detail)
