"""What S3Objects makes of a store's answers, as a scripted server gives them, and of a wrong address or key.

NOT HERE the verbs and their promises while the store answers: tests/contract/test_objects.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from headwater.errors import Closed, InvalidRequest
from headwater.storage import s3
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.objects import Changed, Exists, Found, Objects, StoreUnsure
from headwater.storage.places import is_bucket, open_files
from headwater.storage.s3 import S3Objects, parse_address
from headwater.storage.s3_answers import Meaning, read_answer
from tests.servers.scripted_http import CLOSE, RESET, SILENCE, ScriptedServer, error, reply, scripted_http
from tests.servers.versitygw import S3Server, environment, versitygw

VERBS: dict[str, Callable[[Objects], object]] = {
    "put": lambda objects: objects.put("n", b"12345"),
    "put_if_absent": lambda objects: objects.put_if_absent("n", b"12345"),
    "put_if_match": lambda objects: objects.put_if_match("n", b"12345", '"an-etag"'),
    "get": lambda objects: objects.get("n"),
    "get_range": lambda objects: objects.get_range("n", 2, 3),
    "size": lambda objects: objects.size("n"),
    "list_after": lambda objects: objects.list_after("n"),
    "delete": lambda objects: objects.delete("n"),
}
each_verb = pytest.mark.parametrize("verb", VERBS)


def objects_at(server: ScriptedServer, *, request_s_max: float = 20.0, **given: str) -> S3Objects:
    settings = S3Server(server.endpoint).environment | given
    with environment(settings):
        return S3Objects("s3://headwater", request_s_max=request_s_max)


def found(body: bytes, *headers: str) -> bytes:
    return reply("200 OK", body, 'etag: "e"', "last-modified: Sun, 15 Nov 2026 10:00:00 GMT", *headers)


# ------------------------------------------------------------------------------- nobody knows what became of it

UNSURE = {
    "409 of another request under way": reply("409 Conflict", error("ConditionalRequestConflict")),
    "409 of an operation under way": reply("409 Conflict", error("OperationAborted")),
    "409 without a body": reply("409 Conflict"),
    "500": reply("500 Internal Server Error", error("InternalError")),
    "502 of a proxy": reply("502 Bad Gateway", b"<html>bad gateway</html>"),
    "503 slow down": reply("503 Slow Down", error("SlowDown")),
    "504": reply("504 Gateway Timeout"),
    "408": reply("408 Request Timeout"),
    "429": reply("429 Too Many Requests", error("TooManyRequests")),
    "400 of a request that stalled": reply("400 Bad Request", error("RequestTimeout")),
    "400 of bytes that were damaged": reply("400 Bad Request", error("XAmzContentSHA256Mismatch")),
    "400 of too many requests": reply("400 Bad Request", error("KMS.ThrottlingException")),
    "a connection that breaks": RESET,
    "a connection that closes": CLOSE,
    "nonsense": b"SMTP is spoken here\r\n\r\n",
}


@each_verb
@pytest.mark.parametrize("answer", UNSURE)
def test_a_store_that_does_not_say_what_became_of_it_leaves_it_unsure_after_one_request(verb: str, answer: str) -> None:
    with scripted_http(UNSURE[answer]) as server:
        objects = objects_at(server)

        with pytest.raises(StoreUnsure):
            VERBS[verb](objects)

        assert len(server.requests) == 1, "the client tried again by itself"
        assert objects.counters.unsure == 1


@pytest.mark.parametrize("verb", ["put_if_absent", "get", "list_after", "delete"])
def test_a_store_that_is_silent_is_given_up(verb: str) -> None:
    with scripted_http(SILENCE) as server:
        objects = objects_at(server, request_s_max=0.3)
        begun = time.monotonic()

        with pytest.raises(StoreUnsure):
            VERBS[verb](objects)

        assert 0.2 < time.monotonic() - begun < 10
        assert len(server.requests) == 1


def test_a_lease_that_a_store_is_silent_about_is_given_up_while_it_can_still_be_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "SMALL_REQUEST_S_MAX", 0.2)
    with scripted_http(SILENCE) as server:
        objects = objects_at(server, request_s_max=1.2)

        took: list[float] = []
        for size in (4 << 10, (4 << 10) + 1):
            begun = time.monotonic()
            with pytest.raises(StoreUnsure):
                objects.put_if_match("log/lease", bytes(size), '"e"')
            took.append(time.monotonic() - begun)

        assert took[0] < 1.0 < took[1]


def test_an_object_of_which_only_a_part_comes_is_not_got() -> None:
    cut = reply("200 OK", b"123", 'etag: "e"', length=1_000)
    with scripted_http(cut) as server:
        objects = objects_at(server, request_s_max=0.3)

        with pytest.raises(StoreUnsure):
            objects.get("n")

        assert len(server.requests) == 1


def test_a_server_that_is_not_there_leaves_it_unsure_and_says_why() -> None:
    with scripted_http(CLOSE) as server:
        objects = objects_at(server)

    with pytest.raises(StoreUnsure, match="onnection refused"):
        objects.put_if_absent("n", b"x")


# --------------------------------------------------------------------------------------- asking again is no use

REFUSED = {
    "400 wrong region": reply("400 Bad Request", error("AuthorizationHeaderMalformed")),
    "401": reply("401 Unauthorized"),
    "403 wrong secret": reply("403 Forbidden", error("SignatureDoesNotMatch")),
    "403 without a body": reply("403 Forbidden"),
    "404 no such bucket": reply("404 Not Found", error("NoSuchBucket")),
    "404 of something that is no store": reply("404 Not Found", b"<html>not here</html>"),
    "301 to another region": reply("301 Moved Permanently", error("PermanentRedirect")),
    "405": reply("405 Method Not Allowed", error("MethodNotAllowed")),
    "409 of a name that a folder has": reply("409 Conflict", error("ExistingObjectIsDirectory")),
    "501 no conditional puts": reply("501 Not Implemented", error("NotImplemented")),
}


@each_verb
@pytest.mark.parametrize("answer", REFUSED)
def test_what_asking_again_cannot_mend_is_refused_by_name(verb: str, answer: str) -> None:
    with scripted_http(REFUSED[answer]) as server:
        objects = objects_at(server)

        with pytest.raises(PermissionError, match="the store refuses") as caught:
            VERBS[verb](objects)

        assert caught.value.filename == "s3://headwater/n"
        assert len(server.requests) == 1
        assert objects.counters.unsure == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("404 no such bucket", "there is no bucket 'headwater'"),
        ("403 wrong secret", "AWS_SECRET_ACCESS_KEY.*SignatureDoesNotMatch"),
        ("301 to another region", "AWS_REGION"),
        ("501 no conditional puts", "conditional puts"),
    ],
)
def test_a_refusal_says_what_to_look_at(answer: str, told: str) -> None:
    with scripted_http(REFUSED[answer]) as server, pytest.raises(PermissionError, match=told):
        objects_at(server).get("n")


def test_an_endpoint_without_tls_is_not_used_unasked() -> None:
    with scripted_http(reply("200 OK")) as server:
        objects = objects_at(server, AWS_ALLOW_HTTP="false")

        with pytest.raises(PermissionError, match="AWS_ALLOW_HTTP=true"):
            objects.put("n", b"x")

        assert not server.requests


def test_a_machine_without_credentials_is_told_so_at_once_but_an_owner_that_had_some_is_unsure() -> None:
    asked = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 5s - "
    silent = OSError(f"{asked}HTTP error: error sending request\n\nDebug source:\nGeneric {{ TimedOut }}")
    denied = OSError(f"{asked}Server returned non-2xx status code: 403 Forbidden: ")
    with scripted_http(reply("200 OK", b"", 'etag: "e"')) as server:
        objects = objects_at(server)

        assert isinstance(objects._judge("n", silent, {}), PermissionError)
        assert isinstance(objects._judge("n", denied, {}), PermissionError)
        objects.put("n", b"x")
        assert isinstance(objects._judge("n", silent, {}), StoreUnsure)
        assert isinstance(objects._judge("n", denied, {}), StoreUnsure)


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "put_if_match", "get"])
def test_a_store_without_etags_is_refused(verb: str) -> None:
    with scripted_http(reply("200 OK", b"12345", "last-modified: Sun, 15 Nov 2026 10:00:00 GMT")) as server:
        objects = objects_at(server)

        # The client itself misses the etag of a put, after which the put may well have been done.
        with pytest.raises((PermissionError, StoreUnsure), match=r"(?i)etag"):
            VERBS[verb](objects)


def test_a_store_that_lists_in_no_order_is_refused() -> None:
    with (
        scripted_http(found(listing(["nb", "na"]))) as server,
        pytest.raises(PermissionError, match="in no order"),
    ):
        objects_at(server).list_after("n")


# ---------------------------------------------------------------------------------------------------- answers


def test_only_a_412_says_that_the_name_exists_or_has_changed() -> None:
    with scripted_http(reply("412 Precondition Failed", error("PreconditionFailed"))) as server:
        objects = objects_at(server)

        with pytest.raises(Exists):
            objects.put_if_absent("n", b"x")
        with pytest.raises(Changed):
            objects.put_if_match("n", b"x", '"e"')
        for verb in ("put", "get", "get_range", "size", "list_after", "delete"):
            with pytest.raises(PermissionError):
                VERBS[verb](objects)

        assert [request.headers.get("if-none-match") for request in server.requests[:2]] == ["*", None]
        assert [request.headers.get("if-match") for request in server.requests[:2]] == [None, '"e"']


def test_only_a_404_of_this_key_says_that_a_name_is_absent() -> None:
    with scripted_http(reply("404 Not Found", error("NoSuchKey"))) as server:
        objects = objects_at(server)

        for verb in ("get", "get_range", "size"):
            with pytest.raises(FileNotFoundError):
                VERBS[verb](objects)
        with pytest.raises(Changed):
            objects.put_if_match("n", b"x", '"e"')
        objects.delete("n")
        for verb in ("put", "put_if_absent", "list_after"):
            with pytest.raises(PermissionError):
                VERBS[verb](objects)


def test_a_delete_is_a_delete_of_that_name() -> None:
    # The client's bulk delete answers 200 even for names that it did not delete.
    with scripted_http(reply("204 No Content")) as server:
        objects_at(server).delete("log/1")

        assert [request.line for request in server.requests] == ["DELETE /headwater/log/1"]


def test_a_put_is_one_request_however_large() -> None:
    data = bytes(17 << 20)
    with scripted_http(reply("200 OK", b"", 'etag: "e"')) as server:
        objects = objects_at(server)

        assert objects.put("n", data) == '"e"'
        assert objects.put_if_absent("n", data) == '"e"'

        assert [(request.line, len(request.body)) for request in server.requests] == [
            ("PUT /headwater/n", len(data))
        ] * 2


def test_no_request_of_many_threads_is_left_uncounted() -> None:
    with scripted_http(CLOSE) as server:
        objects = objects_at(server)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=count_puts, args=(objects, 5_000)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)

    assert objects.counters.puts == 20_000


def count_puts(objects: S3Objects, times: int) -> None:
    for _ in range(times):
        objects._count(puts=1)


def test_a_range_that_a_store_cuts_short_is_not_taken_for_the_end() -> None:
    short = reply(
        "206 Partial Content", b"34", 'etag: "e"', "last-modified: Sun, 15 Nov 2026 10:00:00 GMT",
        "content-range: bytes 2-3/100",
    )  # fmt: skip
    with scripted_http(short) as server, pytest.raises(StoreUnsure, match=r"Requested 2\.\.5, got 2\.\.4"):
        objects_at(server).get_range("n", 2, 3)


def listing(names: list[str], token: str = "") -> bytes:
    contents = "".join(
        f"<Contents><Key>{name}</Key><LastModified>2026-11-15T10:00:00.000Z</LastModified><Size>7</Size>"
        '<ETag>"e"</ETag></Contents>'
        for name in names
    )
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode()


def test_a_list_asks_for_no_page_that_nobody_wants_and_counts_those_that_it_asks_for() -> None:
    names = [f"n/{number:04d}" for number in range(1_500)]
    with scripted_http(found(listing(names[:1_000], "t")), found(listing(names[1_000:]))) as server:
        objects = objects_at(server)

        first = objects.list_after("n/", limit=1_000)

        assert [each.name for each in first] == names[:1_000]
        assert (len(server.requests), objects.counters.lists) == (1, 1)
        assert (first[0].size, first[0].modified_us) == (7, 1_794_736_800_000_000)
    with scripted_http(found(listing(names[:1_000], "t")), found(listing(names[1_000:]))) as server:
        objects = objects_at(server)

        assert [each.name for each in objects.list_after("n/", limit=9_000)] == names
        assert (len(server.requests), objects.counters.lists) == (2, 2)


def test_a_list_of_a_prefix_begins_near_it() -> None:
    with scripted_http(found(listing(["log/1zzzzz", "log/2", "log/21", "log/3", "log/30"]))) as server:
        assert [each.name for each in objects_at(server).list_after("log/2")] == ["log/2", "log/21"]

        assert server.requests[0].line.endswith("?list-type=2&prefix=log%2F&start-after=log%2F1zzzz")


@pytest.mark.parametrize(
    ("text", "status", "code", "meaning"),
    [
        ("x - Server returned non-2xx status code: 412 Precondition Failed: <Code>A</Code>", 412, "A", Meaning.UNMET),
        ("x - HTTP error: error sending request <Code>NoSuchKey</Code>", 0, "", Meaning.UNSURE),
        ("status code: 500 Oops: status code: 412 <Code>NoSuchKey</Code>", 500, "NoSuchKey", Meaning.UNSURE),
        ("x\n\nDebug source:\nstatus code: 412", 0, "", Meaning.UNSURE),
        ("status code: 404 Not Found: <Code>NoSuchKey</Code>", 404, "NoSuchKey", Meaning.ABSENT),
        ("status code: 404 Not Found: ", 404, "", Meaning.REFUSED),
        ("status code: 416 Range Not Satisfiable: ", 416, "", Meaning.BEYOND),
    ],
)
def test_an_answer_is_read_from_its_status_and_code_alone(text: str, status: int, code: str, meaning: Meaning) -> None:
    answer = read_answer(text)

    assert (answer.status, answer.code, answer.meaning) == (status, code, meaning)


# ---------------------------------------------------------------------------------------------- a real server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as server:
        yield server


def test_another_who_opens_the_address_sees_the_same_objects(server: S3Server) -> None:
    with server.in_environment():
        etag = S3Objects(server.url("shared/")).put("log/trim", b"x")

        other = S3Objects(server.url("shared"))
        whole = S3Objects(server.url())

    assert other.url == "s3://headwater/shared"
    assert other.get("log/trim") == Found(b"x", etag)
    assert whole.get("shared/log/trim") == Found(b"x", etag)


def test_a_wrong_secret_and_a_wrong_bucket_are_told_by_a_real_server_too(server: S3Server) -> None:
    with environment(server.environment | {"AWS_SECRET_ACCESS_KEY": "mistyped"}):
        no_key = S3Objects(server.url())
    with server.in_environment():
        no_bucket = S3Objects("s3://mistyped")

    for verb in VERBS.values():
        with pytest.raises(PermissionError, match="AWS_SECRET_ACCESS_KEY"):
            verb(no_key)
        with pytest.raises(PermissionError, match="there is no bucket 'mistyped'"):
            verb(no_bucket)


def test_a_name_that_a_folder_of_the_server_has_is_refused_rather_than_tried_for_ever(server: S3Server) -> None:
    with server.in_environment():
        objects = S3Objects(server.url("clash"))
    objects.put("a/b", b"x")

    with pytest.raises(PermissionError, match="ExistingObjectIsDirectory"):
        objects.put_if_absent("a", b"x")
    with pytest.raises(PermissionError, match="ObjectParentIsFile"):
        objects.put_if_absent("a/b/c", b"x")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_is_refused_rather_than_left_waiting(server: S3Server) -> None:
    with server.in_environment():
        objects = S3Objects(server.url("forked"))
    objects.put("a", b"x")

    child = os.fork()
    if child == 0:
        refused = 0
        for verb in VERBS.values():
            try:
                verb(objects)
            except Closed:
                refused += 1
        os._exit(refused)
    ended = eventually(lambda: os.waitpid(child, os.WNOHANG))
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    assert ended and os.waitstatus_to_exitcode(ended[1]) == len(VERBS)


def eventually(ask: Callable[[], tuple[int, int]]) -> tuple[int, int] | None:
    """The first answer of which the first part is not 0, or nothing after ten seconds."""
    for _ in range(1_000):
        answer = ask()
        if answer[0]:
            return answer
        time.sleep(0.01)
    return None


# ----------------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("url", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3://my.bucket-1/a", "my.bucket-1", "a"),
        ("s3://bucket/a/b.c/d=1/", "bucket", "a/b.c/d=1"),
    ],
)
def test_an_address_is_a_bucket_and_a_prefix(url: str, bucket: str, prefix: str) -> None:
    assert parse_address(url) == (bucket, prefix)


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///a", "s3://b", "s3:/bucket/a", "s3://bucket//a", "s3://bucket/a//b", "s3://bucket/../a",
     "s3://bucket/a b", "s3://bucket/a?x=1", "s3://bucket/a%20b", "s3://user@bucket/a", "s3://bucket/ä"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"s3://bucket|parts of a prefix"):
        parse_address(url)


def test_a_place_is_a_folder_or_a_bucket(server: S3Server, tmp_path: object) -> None:
    with server.in_environment():
        files = open_files(server.url("some/log"), take_over=True)

    assert isinstance(files, BucketFiles)
    assert (files.url, files.take_over) == ("s3://headwater/some/log", True)
    assert isinstance(open_files(str(tmp_path)), DiskFiles)
    assert (is_bucket("s3://b/c"), is_bucket("/a/b"), is_bucket("a:b")) == (True, False, False)


@pytest.mark.parametrize("where", ["gs://bucket/a", "az://bucket/a", "http://host/bucket", "S3://bucket"])
def test_a_store_of_another_kind_is_refused_by_name(where: str) -> None:
    with pytest.raises(InvalidRequest, match="of S3 or of a store that speaks its protocol"):
        open_files(where)


def test_without_the_extra_a_bucket_is_refused_and_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from headwater.storage.places import open_files\n"
        "open_files('/tmp')\n"
        "try:\n    open_files('s3://bucket/a')\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.stdout.startswith("InvalidRequest"), done.stderr
    assert "pip install 'headwater[objects]'" in done.stdout
