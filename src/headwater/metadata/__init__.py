"""The metadata of a data directory: operations in a journal, folded into a state, with checkpoints of it.

operations.py   what can be done to the metadata, each one frame of the journal
state.py        the fold of the operations: pure and deterministic
ring.py         the headers of the latest operations, and how many more fit before a checkpoint is due
checkpoint.py   a state in a file of its own, whole or not there
recovery.py     where replay begins, and what a frame does to the state: no effects
journal.py      the open journal: append, look, checkpoint, recover

NOT HERE  Arrow: a schema is bytes to the metadata.
"""
