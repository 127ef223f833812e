"""Your own code under a power loss: `headwater.testing` loses what was not synced, from a seed."""

import headwater as hw
from headwater.testing import CrashableLog


def load(log: hw.Log) -> None:
    """The program to be tested: it goes on where it had come to."""
    log.topic("numbers", schema={"n": int})
    position = log.source_position("counter")
    begin = position.position if position else 0
    for n in range(begin, begin + 5):
        with log.transaction() as tx:
            tx.append("numbers", {"n": n})
            tx.set_source("counter", n + 1)


world = CrashableLog()
load(world.log)
for seed in range(3):
    load(world.lose_power(seed))
numbers = [row["n"] for row in world.log["numbers"].read().to_pylist()]
assert numbers == list(range(20)), numbers
print("20 numbers, each once, over 3 power losses")
world.close()
