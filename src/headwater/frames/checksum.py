"""CRC-32C, the one checksum of every file: `crc32c(data, value=0)` goes on from an earlier value.

This is the one place that knows which library computes it.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
