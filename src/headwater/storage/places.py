"""Where a log lies, as a person writes it: a folder of this machine, or a prefix of a bucket.

/var/lib/log, ./log             DiskFiles
s3://bucket, s3://bucket/prefix BucketFiles over S3Objects; needs the extra `objects`
anything else with ://          InvalidRequest: only S3, and stores that speak its protocol, have been tested

NOT HERE Reading anything: opening a place asks neither the disk nor the store.
"""

from __future__ import annotations

from headwater.errors import InvalidRequest
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles


def is_bucket(where: str) -> bool:
    """Is this an address in a store, rather than a path?"""
    return "://" in where


def open_files(where: str, *, take_over: bool = False) -> DiskFiles | BucketFiles:
    """The files at this place.  `take_over` lets the first write claim a log in a bucket whose owner seems alive."""
    if not is_bucket(where):
        return DiskFiles(where)
    scheme = where.partition("://")[0]
    if scheme != "s3":
        raise InvalidRequest(
            "a log lies in a folder, or in a bucket of S3 or of a store that speaks its protocol (s3://bucket/prefix)",
            got=where,
        )
    from headwater.storage.s3 import S3Objects

    return BucketFiles(S3Objects(where), take_over=take_over)
