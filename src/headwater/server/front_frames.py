"""What a client of gRPC sends, followed frame by frame without being decoded: enough to see what must not get in.

    preface    "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"
    frame      length (3 bytes), type (1), flags (1), stream (4), then so many bytes
    in the DATA frames of a stream, across their borders: a flag (1 byte), a length (4 bytes, big-endian), a message

REFUSED  A message that is compressed: gRPC would unpack it whole, however large it becomes, before anybody is asked
         who they are.  A message above the limit.  Headers without an end.  More streams than anybody needs.
         A DATA frame with padding, or on no stream: no client of gRPC sends one.
PROMISE  Bytes are looked at where a frame or a message begins, and passed over elsewhere; what is kept is a few numbers
         a stream.  Pure: no I/O, no clock.
NOT HERE Whether the frames make sense: gRPC finds that out.  The relay: front.py.
"""

from __future__ import annotations

from headwater.errors import InvalidRequest, TooLarge

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
PREFIX_BYTES = 5
DATA, HEADERS, RST_STREAM, CONTINUATION = 0, 1, 3, 9
END_STREAM, PADDED = 1, 8
HEADER_BLOCK_BYTES_MAX = 64 * 1024
HEADER_FRAMES_MAX = 64
STREAMS_MAX = 10_000
"""Streams of one connection that its client has not ended."""


class _Stream:
    """Where a stream stands: what is still to come of its message, or a part of the next one's prefix."""

    __slots__ = ("left", "prefix")

    def __init__(self) -> None:
        self.left = 0
        self.prefix = b""


class FrameWatch:
    """One connection's bytes, from its first."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._head = b""
        """Of the preface, or of a frame: what has come of it."""
        self._begun = False
        self._left = 0
        """Bytes of the present frame that are still to come."""
        self._is_data = False
        self._data: _Stream | None = None
        """Whose message they are of; None: nobody's."""
        self._ends: int | None = None
        """The stream that ends with this frame."""
        self._block_bytes = self._block_frames = 0
        self._streams: dict[int, _Stream] = {}
        self.message_bytes = 0
        """Of DATA frames, as many as have come."""

    def feed(self, data: bytes) -> None:
        """The next bytes; InvalidRequest or TooLarge where they must not get in."""
        at = 0
        size = len(data)
        while at < size:
            if self._left:
                taken = min(self._left, size - at)
                if self._is_data:
                    self.message_bytes += taken
                if self._data is not None:
                    self._messages(self._data, data, at, at + taken)
                self._left -= taken
                at += taken
                if not self._left:
                    self._frame_ended()
                continue
            wanted = HEAD_BYTES if self._begun else len(PREFACE)
            taken = min(wanted - len(self._head), size - at)
            self._head += data[at : at + taken]
            at += taken
            if not self._begun:
                self._preface()
            elif len(self._head) == HEAD_BYTES:
                self._frame_begins()

    def _preface(self) -> None:
        if not PREFACE.startswith(self._head):
            raise InvalidRequest("this is no HTTP/2")
        if len(self._head) == len(PREFACE):
            self._begun = True
            self._head = b""

    def _frame_begins(self) -> None:
        head, self._head = self._head, b""
        self._left = head[0] << 16 | head[1] << 8 | head[2]
        kind, flags = head[3], head[4]
        stream = int.from_bytes(head[5:9], "big") & 0x7FFFFFFF
        self._is_data = False
        self._data = self._ends = None
        if kind == DATA:
            self._data_begins(stream, flags)
        elif kind in (HEADERS, CONTINUATION):
            self._block_begins(kind, stream, flags)
        elif kind == RST_STREAM:
            self._streams.pop(stream, None)
        if not self._left:
            self._frame_ended()

    def _data_begins(self, stream: int, flags: int) -> None:
        if flags & PADDED or not stream:
            raise InvalidRequest("a DATA frame with padding, or on no stream")
        self._is_data = True
        # A stream that is not known has ended: gRPC passes over what still comes for it.
        self._data = self._streams.get(stream)
        if flags & END_STREAM:
            self._ends = stream

    def _block_begins(self, kind: int, stream: int, flags: int) -> None:
        if kind == HEADERS:
            self._block_bytes = self._block_frames = 0
            if stream not in self._streams:
                if len(self._streams) >= STREAMS_MAX:
                    raise TooLarge("too many streams of one connection: close some", streams_max=STREAMS_MAX)
                self._streams[stream] = _Stream()
            if flags & END_STREAM:
                self._ends = stream
        self._block_bytes += self._left
        self._block_frames += 1
        if self._block_bytes > HEADER_BLOCK_BYTES_MAX or self._block_frames > HEADER_FRAMES_MAX:
            raise TooLarge("the headers of a call are too large: send less in them", bytes_max=HEADER_BLOCK_BYTES_MAX)

    def _frame_ended(self) -> None:
        if self._ends is not None:
            self._streams.pop(self._ends, None)
        self._data = self._ends = None

    def _messages(self, stream: _Stream, data: bytes, at: int, end: int) -> None:
        while at < end:
            if stream.left:
                taken = min(stream.left, end - at)
                stream.left -= taken
                at += taken
                continue
            taken = min(PREFIX_BYTES - len(stream.prefix), end - at)
            stream.prefix += data[at : at + taken]
            at += taken
            # The flag is known from the first byte on, the length from the fifth.
            if stream.prefix[0]:
                raise InvalidRequest("a message that is compressed: send it as it is")
            if len(stream.prefix) == PREFIX_BYTES:
                stream.left = int.from_bytes(stream.prefix[1:], "big")
                stream.prefix = b""
                if stream.left > self._message_bytes_max:
                    raise TooLarge(
                        "a message is too large: split it", bytes=stream.left, bytes_max=self._message_bytes_max
                    )
