"""How a log in a bucket is doing: where it lies, who owns it, how much is on the walk, and what it has cost.

ALIVE    An owner gives a sign of life every second, and only what was seen to change is one: a look waits for that, for
         a little longer than a second, unless it has changed since the look before.
PROMISE  It reads only: trim, the lease, and a list of the slots since trim.
"""

from __future__ import annotations

import threading

from headwater.clock import Clock
from headwater.log.log_lease import RENEW_S, Lease, read_lease
from headwater.log.manifest import Manifest, unpack_manifest
from headwater.log.slots import LEASE, TRIM, is_slot_name, slot_name
from headwater.storage.bucket_files import BucketFiles
from headwater.topics.answers import StoreOwner, StoreStatus

LOG = "log"
_POLL_S = 0.1
_PATIENT_S = 1.5 * RENEW_S


class StoreWatch:
    """Looks at one bucket now and then.  Safe for any number of threads."""

    def __init__(self, files: BucketFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._guard = threading.Lock()
        self._seen: tuple[str, int] | None = None
        """The token and the counter of the lease, as they were seen last."""

    def look(self, *, owner_here: bool) -> StoreStatus:
        """`owner_here`: this process is the owner, and need not wait for its own sign of life."""
        manifest = self._manifest()
        objects = self._files.objects
        return StoreStatus(
            url=self._files.url,
            window=manifest.window if manifest is not None else 0,
            slots=self._slots_after(manifest.next) if manifest is not None else 0,
            kept_segments=len(manifest.segments) if manifest is not None else 0,
            owner=self._owner(owner_here),
            requests=objects.counters.as_dict(),
        )

    def _get(self, name: str) -> bytes | None:
        try:
            return self._files.patience.ask(lambda: self._files.objects.get(f"{LOG}/{name}")).data
        except FileNotFoundError:
            return None

    def _manifest(self) -> Manifest | None:
        data = self._get(TRIM)
        return unpack_manifest(data) if data is not None else None

    def _slots_after(self, first: int) -> int:
        prefix, after, found = f"{LOG}/", f"{LOG}/{slot_name(first - 1)}", 0
        while page := self._files.patience.ask(lambda: self._files.objects.list_after(prefix, after)):  # noqa: B023
            found += sum(is_slot_name(each.name.removeprefix(prefix)) for each in page)
            after = page[-1].name
        return found

    def _lease(self) -> Lease | None:
        data = self._get(LEASE)
        return read_lease(data) if data is not None else None

    def _owner(self, owner_here: bool) -> StoreOwner | None:
        """Who wrote the last sign of life; nothing where nobody has, or where they have let go of the log."""
        with self._guard:
            lease = self._lease()
            if lease is None or lease.released:
                return None
            alive = owner_here or self._is_alive(lease)
            return StoreOwner(host=lease.host, pid=lease.pid, since_us=lease.since_us, alive=alive)

    def _is_alive(self, lease: Lease) -> bool:
        begun_s = self._clock.monotonic_s()
        while True:
            before, self._seen = self._seen, (lease.token, lease.counter)
            if before is not None and before != self._seen:
                return True
            if not self._files.threads or self._clock.monotonic_s() - begun_s >= _PATIENT_S:
                return False
            self._files.pause(_POLL_S)
            again = self._lease()
            if again is None or again.released:
                return False
            lease = again
