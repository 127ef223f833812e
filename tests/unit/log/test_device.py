"""The seam itself: its words, and that the file device keeps to it.  What each verb promises: tests/contract."""

from __future__ import annotations

import inspect

from headwater.frames.frame import Header
from headwater.ids import Lsn
from headwater.log import device as seam
from headwater.log.device import Device, Frame, Ticket
from headwater.log.file_device import DurableTicket
from tests.unit.log.device_world import World, commit, rows


def test_a_frame_has_the_lsn_of_its_header() -> None:
    header = Header(b"", *range(1, len(Header._fields)))

    frame = Frame(header, memoryview(b""), "segment", 256)

    assert frame.lsn == header.lsn == Header._fields.index("lsn")


def test_the_file_device_has_every_verb_of_the_seam_with_the_same_arguments() -> None:
    device: Device = World().device()
    ticket: Ticket = DurableTicket(Lsn(1))
    verbs = {name: verb for name, verb in vars(Device).items() if inspect.isfunction(verb) and not name.startswith("_")}

    for name, verb in verbs.items():
        wanted = list(inspect.signature(verb).parameters)
        given = inspect.signature(getattr(type(device), name)).parameters
        positional = [each.name for each in given.values() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
        assert positional == wanted, name
    assert inspect.signature(type(ticket).wait) == inspect.signature(Ticket.wait)
    assert {"recover", "claim", "commit", "durable", "segments", "frames", "forget"} <= set(verbs)


def test_the_seam_says_in_its_own_words_what_its_main_verbs_do() -> None:
    text = seam.__doc__ or ""

    for verb in ("recover()", "claim()", "commit(...)", "durable()", "segments()", "frames(...)", "forget(...)"):
        assert f"\n{verb}" in text


def test_a_durable_ticket_has_nothing_to_wait_for() -> None:
    world = World()
    device = world.owner()

    first_lsn = commit(device, [rows()])

    assert first_lsn == 1
    DurableTicket(first_lsn).wait()
