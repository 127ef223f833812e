"""What every implementation of Objects promises while the store answers.

Runs over the simulated store and over a real S3 server (tests/servers/stores.py says which).  NOT HERE what a request
means of which the store said nothing (tests/unit/storage/test_s3.py and test_simulated_store.py).
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.storage.objects import Changed, Exists, Found, Objects
from headwater.storage.s3 import S3Objects
from headwater.storage.simulated_store import SimulatedStore
from tests.servers.stores import s3_server, store_kinds

THREADS = 8


@pytest.fixture(scope="module", params=["simulated", *store_kinds()])
def new_objects(request: pytest.FixtureRequest) -> Iterator[Callable[[], Objects]]:
    """A way to a part of a store that nobody else uses."""
    if request.param == "simulated":
        yield lambda: SimulatedStore(seed=7)
        return
    with s3_server(request.param) as server, server.in_environment():
        yield lambda: S3Objects(server.url(f"tests/{uuid.uuid4()}"))


@pytest.fixture
def objects(new_objects: Callable[[], Objects]) -> Objects:
    return new_objects()


def names_after(objects: Objects, prefix: str, after: str = "", *, limit: int = 1000) -> list[str]:
    return [found.name for found in objects.list_after(prefix, after, limit=limit)]


# ---------------------------------------------------------------------------------------------------- put, get


@pytest.mark.parametrize("size", [0, 1, 1_000, 3_000_001])
def test_what_was_put_is_got_with_the_etag_of_the_put(objects: Objects, seed: int, size: int) -> None:
    data = random.Random(seed).randbytes(size)

    etag = objects.put("log/trim", data)

    assert etag
    assert objects.get("log/trim") == Found(data, etag)
    assert objects.size("log/trim") == size


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview], ids=lambda kind: str(kind.__name__))
def test_any_buffer_can_be_put(objects: Objects, kind: Callable[[bytes], bytes]) -> None:
    objects.put("a", kind(b"some bytes"))
    objects.put_if_absent("b", kind(b"some bytes"))
    objects.put_if_match("b", kind(b"others"), objects.get("b").etag)

    assert objects.get("a").data == b"some bytes"
    assert objects.get("b").data == b"others"


def test_a_part_of_a_longer_buffer_is_put_alone(objects: Objects) -> None:
    objects.put("a", memoryview(b"0123456789")[3:6])

    assert objects.get("a").data == b"345"


def test_a_put_replaces_whatever_the_name_held(objects: Objects) -> None:
    first = objects.put("a", b"a long first content")

    second = objects.put("a", b"second")

    assert second != first
    assert objects.get("a") == Found(b"second", second)
    assert objects.size("a") == 6


def test_an_absent_name_is_told_by_every_read(objects: Objects) -> None:
    objects.put("log/00000000000000000001", b"x")

    for name in ("log/00000000000000000002", "log", "other", "log/00000000000000000001.0.seg"):
        with pytest.raises(FileNotFoundError):
            objects.get(name)
        with pytest.raises(FileNotFoundError):
            objects.get_range(name, 0, 10)
        with pytest.raises(FileNotFoundError):
            objects.get_range(name, 0, 0)
        with pytest.raises(FileNotFoundError):
            objects.size(name)


def test_an_object_of_64_mib_goes_in_one_put_and_comes_back_in_one_get(objects: Objects, seed: int) -> None:
    data = random.Random(seed).randbytes(1 << 20) * 64

    etag = objects.put_if_absent("large", data)

    assert objects.get("large") == Found(data, etag)
    assert objects.get_range("large", 63 << 20, 2 << 20) == data[63 << 20 :]
    assert (objects.counters.puts, objects.counters.gets) == (1, 2)


def test_names_with_dots_and_depth_are_names_like_others(objects: Objects) -> None:
    names = ["log/00000000000000000001", "log/00000000000000000001.0.seg", "log/00000000000000000001.0.idx"]
    names += ["pins/4b1c9d0e-1", "a/b.c/d-e_f=g+h@i/j", ".hidden", "schemas/a.b/1"]

    for name in names:
        objects.put(name, name.encode())

    assert {name: objects.get(name).data.decode() for name in names} == {name: name for name in names}
    assert names_after(objects, "") == sorted(names)


# ---------------------------------------------------------------------------------------------- put if absent


def test_a_name_that_holds_something_is_not_put_again_not_even_with_the_same_bytes(objects: Objects) -> None:
    etag = objects.put_if_absent("a", b"first")

    for data in (b"second", b"first", b""):
        with pytest.raises(Exists):
            objects.put_if_absent("a", data)

    assert objects.get("a") == Found(b"first", etag)


def test_an_empty_object_is_something(objects: Objects) -> None:
    objects.put("a", b"")

    with pytest.raises(Exists):
        objects.put_if_absent("a", b"second")

    assert objects.get("a").data == b""


def test_a_deleted_name_can_be_put_anew(objects: Objects) -> None:
    objects.put_if_absent("a", b"first")
    objects.delete("a")

    etag = objects.put_if_absent("a", b"second")

    assert objects.get("a") == Found(b"second", etag)


def test_of_many_who_put_an_absent_name_exactly_one_wins(objects: Objects) -> None:
    for number in range(20):
        name = f"log/{number:020d}"

        def put(me: int, name: str = name) -> str:
            return objects.put_if_absent(name, f"by {me}".encode())

        won = race(put, Exists)

        assert len(won) == 1, won
        [(winner, etag)] = won.items()
        assert objects.get(name) == Found(f"by {winner}".encode(), etag)


# ----------------------------------------------------------------------------------------------- put if match


def test_a_chain_of_matching_puts_holds_the_last(objects: Objects) -> None:
    etag = objects.put_if_absent("log/trim", b"0")

    for number in range(1, 20):
        before, etag = etag, objects.put_if_match("log/trim", str(number).encode(), etag)
        assert etag != before

    assert objects.get("log/trim") == Found(b"19", etag)


def test_the_etag_of_a_get_matches(objects: Objects) -> None:
    objects.put("log/trim", b"old")

    objects.put_if_match("log/trim", b"new", objects.get("log/trim").etag)

    assert objects.get("log/trim").data == b"new"


def test_an_etag_of_the_past_changes_nothing(objects: Objects) -> None:
    old = objects.put("log/trim", b"old")
    new = objects.put_if_match("log/trim", b"new", old)

    with pytest.raises(Changed):
        objects.put_if_match("log/trim", b"other", old)

    assert objects.get("log/trim") == Found(b"new", new)


def test_a_name_that_holds_nothing_matches_no_etag(objects: Objects) -> None:
    etag = objects.put("a", b"x")
    objects.delete("a")

    for name in ("a", "never/there"):
        with pytest.raises(Changed):
            objects.put_if_match(name, b"other", etag)

    assert names_after(objects, "") == []


def test_of_many_who_saw_one_etag_exactly_one_swaps(objects: Objects) -> None:
    etag = objects.put("log/trim", b"begin")
    for number in range(20):

        def swap(me: int, number: int = number, etag: str = etag) -> str:
            return objects.put_if_match("log/trim", f"{number} {me}".encode(), etag)

        won = race(swap, Changed)

        assert len(won) == 1, won
        [(winner, etag)] = won.items()
        assert objects.get("log/trim") == Found(f"{number} {winner}".encode(), etag)


def race(put: Callable[[int], str], lost: type[OSError]) -> dict[int, str]:
    """Who of so many threads won, with the etags that they got."""
    start = threading.Barrier(THREADS)
    won: dict[int, str] = {}

    def run(me: int) -> None:
        start.wait()
        try:
            won[me] = put(me)
        except lost:
            pass  # another one was first

    with ThreadPoolExecutor(THREADS) as pool:
        for each in [pool.submit(run, me) for me in range(THREADS)]:
            each.result()
    return won


# ----------------------------------------------------------------------------------------------------- ranges


def test_a_range_gives_what_was_asked_for_and_less_only_where_the_object_ends(objects: Objects) -> None:
    objects.put("a", b"0123456789")

    assert objects.get_range("a", 0, 10) == b"0123456789"
    assert objects.get_range("a", 2, 3) == b"234"
    assert objects.get_range("a", 9, 1) == b"9"
    assert objects.get_range("a", 8, 50) == b"89"
    assert objects.get_range("a", 10, 1) == b""
    assert objects.get_range("a", 500, 50) == b""
    assert objects.get_range("a", 3, 0) == b""


def test_a_range_of_an_empty_object_is_empty(objects: Objects) -> None:
    objects.put("a", b"")

    assert objects.get_range("a", 0, 1) == b""
    assert objects.get_range("a", 0, 1 << 20) == b""
    assert objects.get_range("a", 7, 7) == b""


# ------------------------------------------------------------------------------------------------------ lists


def test_a_list_has_the_names_that_begin_so_in_order(objects: Objects) -> None:
    names = ["a", "log-old/1", "log/1", "log/10", "log/100", "log/2", "log/2.0.seg", "log/lease", "logs/1", "z/1"]
    for name in reversed(names):
        objects.put(name, b"x")

    assert names_after(objects, "") == names
    assert names_after(objects, "log/") == names[2:8]
    assert names_after(objects, "log") == names[1:9]
    assert names_after(objects, "log/1") == ["log/1", "log/10", "log/100"]
    assert names_after(objects, "log/2.") == ["log/2.0.seg"]
    assert names_after(objects, "log/lease") == ["log/lease"]
    assert names_after(objects, "nothing/") == []
    assert names_after(objects, "zz") == []


def test_a_list_begins_after_the_name_whether_or_not_it_is_there(objects: Objects) -> None:
    for number in (1, 3, 5, 7):
        objects.put(f"log/{number:020d}", b"x")
    objects.put("m/1", b"x")

    assert names_after(objects, "log/", f"log/{3:020d}") == [f"log/{5:020d}", f"log/{7:020d}"]
    assert names_after(objects, "log/", f"log/{4:020d}") == [f"log/{5:020d}", f"log/{7:020d}"]
    assert names_after(objects, "log/", f"log/{7:020d}") == []
    assert names_after(objects, "log/", "a") == names_after(objects, "log/")
    assert names_after(objects, "log/", "z") == []
    assert names_after(objects, "log/000", f"log/{6:020d}") == [f"log/{7:020d}"]
    assert names_after(objects, "", f"log/{7:020d}") == ["m/1"]


def test_a_list_ends_at_its_limit_and_goes_on_after_its_last_name(objects: Objects) -> None:
    names = [f"log/{number:020d}" for number in range(25)]
    for name in names:
        objects.put(name, b"x")

    seen: list[str] = []
    while page := names_after(objects, "log/", seen[-1] if seen else "", limit=10):
        assert len(page) <= 10
        seen += page

    assert seen == names


def test_a_list_goes_over_more_names_than_a_store_gives_at_once(objects: Objects) -> None:
    names = [f"log/{number:020d}" for number in range(1_203)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: objects.put(name, b""), names))

    assert names_after(objects, "log/", limit=5_000) == names
    assert names_after(objects, "log/", limit=1_100) == names[:1_100]
    assert names_after(objects, "log/", names[1_000], limit=5_000) == names[1_001:]


def test_a_list_tells_sizes_and_times(objects: Objects) -> None:
    objects.put("log/1", b"12345")
    objects.put("log/2", b"")

    first, second = objects.list_after("log/")

    assert (first.name, first.size) == ("log/1", 5)
    assert (second.name, second.size) == ("log/2", 0)
    if isinstance(objects, S3Objects):
        assert abs(first.modified_us / 1e6 - time.time()) < 60


# ----------------------------------------------------------------------------------------------------- delete


def test_a_deleted_name_holds_nothing(objects: Objects) -> None:
    objects.put("log/1", b"x")
    objects.put("log/2", b"x")

    objects.delete("log/1")

    with pytest.raises(FileNotFoundError):
        objects.get("log/1")
    assert names_after(objects, "") == ["log/2"]


def test_deleting_what_is_absent_is_no_error(objects: Objects) -> None:
    objects.delete("never")
    objects.delete("never/there/at-all")
    objects.put("a", b"x")
    objects.delete("a")

    objects.delete("a")

    assert names_after(objects, "") == []


# ------------------------------------------------------------------------------------------- views, counters


def test_two_parts_of_a_store_do_not_meet(new_objects: Callable[[], Objects]) -> None:
    one, other = new_objects(), new_objects()

    one.put("a", b"one")
    other.put_if_absent("a", b"other")

    assert one.get("a").data == b"one"
    assert names_after(other, "") == ["a"]
    other.delete("a")
    assert one.get("a").data == b"one"


def test_a_request_is_counted_once_and_its_bytes_with_it(objects: Objects) -> None:
    etag = objects.put("a", b"12345")
    objects.put_if_absent("b", b"123")
    with pytest.raises(Exists):
        objects.put_if_absent("b", b"1")
    objects.put_if_match("a", b"12", etag)
    objects.get("a")
    objects.get_range("b", 1, 2)
    with pytest.raises(FileNotFoundError):
        objects.get("c")
    objects.list_after("")
    objects.delete("a")

    counted = objects.counters.as_dict()

    assert {name: counted[name] for name in ("puts", "gets", "lists", "deletes", "unsure")} == {
        "puts": 4,
        "gets": 3,
        "lists": 1,
        "deletes": 1,
        "unsure": 0,
    }
    assert (counted["bytes_put"], counted["bytes_got"]) == (11, 4)


def test_many_threads_share_one_instance_and_every_request_is_counted(objects: Objects) -> None:
    def work(me: int) -> None:
        for number in range(20):
            objects.put(f"{me}/{number}", f"{me} {number}".encode())
            assert objects.get(f"{me}/{number}").data == f"{me} {number}".encode()

    with ThreadPoolExecutor(THREADS) as pool:
        for each in [pool.submit(work, me) for me in range(THREADS)]:
            each.result()

    assert (objects.counters.puts, objects.counters.gets) == (THREADS * 20, THREADS * 20)
    assert len(names_after(objects, "")) == THREADS * 20
