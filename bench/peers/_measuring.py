"""The process in which a part measures.

    python -m bench.peers._measuring PART SIZE FILE       SIZE is tiny, quick or full; PART a part, or a module with one

PROMISE  FILE holds all that was measured so far, whole, at every moment; and why the part failed, if it did.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from bench.peers._part import SIZES, Book, Part, Size

REASON_CHARACTERS = 400


def _measure(part: Part, size: Size, file: Path) -> int:
    def keep(book: Book, failed: str = "") -> None:
        text = json.dumps({"values": book.values, "settings": book.settings, "failed": failed}, allow_nan=False)
        whole = file.with_name(file.name + ".new")
        whole.write_text(text, encoding="utf-8")
        whole.replace(file)

    book = Book(part, keep)
    book.set(began=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), load_1min_before=round(os.getloadavg()[0], 2))
    try:
        part.measure(size, book)
    except BaseException as error:  # noqa: BLE001  whatever ends a part is the reason that the report gives
        traceback.print_exc()
        # A client's own reason stands at the end of what it said.
        said = f"{type(error).__name__}: {error}"
        half = REASON_CHARACTERS // 2
        keep(book, said if len(said) <= REASON_CHARACTERS else f"{said[:half]} ... {said[-half:]}")
        return 1
    return 0


if __name__ == "__main__":
    wanted = sys.argv[1]
    found = import_module(wanted if "." in wanted else f"bench.peers.{wanted}").PART
    sys.exit(_measure(found, SIZES[sys.argv[2]], Path(sys.argv[3]).absolute()))
