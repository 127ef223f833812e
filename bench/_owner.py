"""An owner of a log that appends rows until it is killed, and says each number once its row is acknowledged."""

from __future__ import annotations

import itertools
import sys

import headwater as hw


def main(url: str) -> None:
    with hw.open(url) as log:
        topic = log.topic("events", schema={"number": int})
        for number in itertools.count():
            topic.append({"number": number})
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
