"""A ceiling for what Arrow allocates in a server, because Flight decodes what callers send before anybody can look.

WHY      A record batch over DoPut is decompressed by Arrow's own code before Python sees it: 32 kB of zstd can become a
         gigabyte.  pyarrow has no option against it.  But Arrow takes its memory from mimalloc, and mimalloc can be
         told by its environment to live on one reserved piece of address space and to ask for no more: what does not
         fit is then an error of that one call (ArrowMemoryError), and not the end of the server.
ORDER    mimalloc reads its environment when Arrow is loaded, so this comes before the first import of pyarrow.
PROMISE  Only Arrow's memory is bounded: neither Python nor gRPC, which would end the process where it gets none, can
         run into this ceiling.  What is reserved is addresses; memory is used as it is needed.
NOT HERE What gRPC holds of a message that is on its way: SECURITY.md says how much that is, and what helps.
"""

from __future__ import annotations

import logging
import os
import sys

from headwater.settings import MIB

ARROW_BYTES_MAX = 2048 * MIB
"""Some hundred messages of the largest size cannot be decoded at the same time; about twenty can."""

NO_MEMORY = "there is no memory for this now: send less at a time, or try again later"
"""What a caller is told whose call met the ceiling."""

_RESERVE, _NO_MORE, _QUIET = "MIMALLOC_RESERVE_OS_MEMORY", "MIMALLOC_LIMIT_OS_ALLOC", "MIMALLOC_SHOW_ERRORS"

logger = logging.getLogger("headwater.server")


def bound_arrow_memory(size_bytes: int = ARROW_BYTES_MAX) -> bool:
    """Have Arrow use at most about this much in this process; whether that can still be had.  What the environment
    says already stays."""
    if "pyarrow" in sys.modules:
        return _RESERVE in os.environ
    os.environ.setdefault(_RESERVE, f"{size_bytes // 1024}KiB")
    os.environ.setdefault(_NO_MORE, "1")
    # A refused allocation is told by the error that it becomes.
    os.environ.setdefault(_QUIET, "0")
    return True


def warn_if_unbounded(bounded: bool) -> None:
    """Say so where the ceiling is not there: another allocator was asked for, or pyarrow was loaded too early."""
    import pyarrow as pa

    backend = pa.default_memory_pool().backend_name
    if not bounded or backend != "mimalloc":
        logger.warning(
            "nothing bounds the memory that compressed rows of callers can take (Arrow uses %s); limit the memory of "
            "this process from outside",
            backend,
        )
