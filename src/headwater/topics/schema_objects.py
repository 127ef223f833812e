"""Schemas as objects: in a bucket every version of a topic's schema is an object of its own.

    schemas/<topic id, 32 hex digits>/<version, from 1>      the Arrow schema, as an IPC message

Rows can then be read by whoever has the bucket and an Arrow library, without the journal.  The journal stays the only
source: nothing here reads these objects.

PROMISE  An object is there before the journal names its version, and holds what the journal says.  One that an owner
         has left which ended before it could journal it is written over.
         On a disk nothing of this is made: there every segment carries its schemas, as it does here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from headwater.errors import Unavailable
from headwater.metadata.journal import Journal
from headwater.metadata.operations import AddSchema, CreateTopic, Operation
from headwater.metadata.state import MetadataState
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files
from headwater.storage.objects import StoreUnsure
from headwater.storage.store_patience import put_anyway

DIRECTORY = "schemas"
SIDE_BY_SIDE = 8
"""Whoever makes a thousand topics at once does not wait for a thousand requests one after the other."""


def journaled(files: Files, journal: Journal, operations: Sequence[Operation]) -> MetadataState:
    """Write these operations to the journal, once the schemas that they name are there."""
    if isinstance(files, BucketFiles):
        _put_schemas(files, journal.state, operations)
    return journal.append(operations)


def _put_schemas(files: BucketFiles, state: MetadataState, operations: Iterable[Operation]) -> None:
    def put(named: tuple[str, bytes]) -> None:
        try:
            put_anyway(files.patience, files.objects, *named)
        except StoreUnsure as error:
            # The object may appear later, and says nothing of a topic: only the journal does.
            raise Unavailable(f"the topic was not changed: {error}") from error

    wanted = list(_named(state, operations))
    if len(wanted) > 1 and files.threads:
        with ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="headwater-schemas") as together:
            list(together.map(put, wanted))
    else:
        for each in wanted:
            put(each)


def schema_name(topic_id: bytes, version: int) -> str:
    return f"{DIRECTORY}/{topic_id.hex()}/{version}"


def _named(state: MetadataState, operations: Iterable[Operation]) -> Iterator[tuple[str, bytes]]:
    for operation in operations:
        if isinstance(operation, CreateTopic):
            for version, schema in enumerate(operation.topic.schemas, start=1):
                yield schema_name(operation.topic.topic_id, version), schema
        elif isinstance(operation, AddSchema):
            yield schema_name(state.topics[operation.number].topic_id, operation.version), operation.schema
