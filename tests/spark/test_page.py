"""The page's server: what it answers, to whom, and that nobody who looks can harm a query."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("starlette", reason="the extra 'page' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'page' is not installed")

from spark.progresses import progress
from spark.test_follow import Query
from thetajoin.errors import OptionError
from thetajoin.jobs.history import NEWEST, OLDER
from thetajoin.jobs.page import KEPT, Drawn, Feed, Page, Picture, serve

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page(Picture(title="job", sources=(Drawn("a", "/data/dc1"),)), port=0).start()
    yield made
    made.stop()


def asked(page: Page, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


class Listener:
    """A tab."""

    def __init__(self, page: Page) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
        self.connection.request("GET", "/events")
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, dict[str, Any]]:
        kind = ""
        for line in iter(self.answer.readline, b""):
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
            if line.startswith(b"data: "):
                return kind, json.loads(line[6:])
            assert not line.startswith(b":"), "nothing new has come for long"
        raise EOFError


def test_everything_first_then_each_step(page: Page) -> None:
    page.feed.add(progress(0))
    tab = Listener(page)
    kind, whole = tab.next()
    assert kind == "whole"
    assert (whole["status"], len(whole["points"])) == ("running", 1)
    for number in (1, 2):
        page.feed.add(progress(number))
        kind, step = tab.next()
        assert kind == "step"
        assert dict(zip(whole["fields"], step["point"], strict=True))["rows"] == 1000 + number
        assert step["totals"]["batches"] == number + 1
        assert step["batch"]["number"] == number
    page.feed.end("it broke")
    kind, last = tab.next()
    assert (last["status"], last["error"], last["point"]) == ("failed", "it broke", None)
    # A page that is loaded again, or for the first time, has all of it.
    assert Listener(page).next()[1]["totals"] == last["totals"]
    status, headers, body = asked(page, "/state")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert len(json.loads(body)["points"]) == 3


def test_it_is_one_document_that_loads_nothing_else(page: Page) -> None:
    status, headers, body = asked(page, "/")
    assert status == 200
    html = body.decode()
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", html)
    hosts = set(re.findall(r"https?://([\w.]+)", html))
    assert hosts == {"www.w3.org"}  # the name of SVG, which nobody fetches
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "innerHTML" not in html
    assert asked(page, "/nothing")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4050", "127.0.0.1.evil.example"])
def test_other_sites_names_are_not_answered(page: Page, host: str) -> None:
    page.feed.add(progress(0))
    for path in ("/", "/state", "/events"):
        status, _, body = asked(page, path, host)
        assert status == 400
        assert b"points" not in body
    for known in (f"127.0.0.1:{page.port}", f"localhost:{page.port}", "localhost"):
        assert asked(page, "/state", known)[0] == 200


def test_only_this_machine_is_served(page: Page) -> None:
    assert page.address == f"http://127.0.0.1:{page.port}/"
    assert page._socket.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_unless_none_was_asked_for(page: Page) -> None:
    with pytest.raises(OptionError, match=f"cannot have port {page.port}: Address already in use"):
        Page(port=page.port)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 4050))
            other.listen()
        except OSError:
            pass  # somebody has it already, which is as good
        free = Page()
        assert free.port not in (0, 4050)
        free._socket.close()


def test_tabs_that_close_or_do_not_read_harm_nobody(page: Page) -> None:
    """Twenty tabs that never read, twenty that close: adding stays fast, the rest get all."""
    page.feed.add(progress(0))
    tab = Listener(page)
    tab.next()
    idle = []
    for at in range(40):
        one = socket.create_connection(("127.0.0.1", page.port))
        one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if at % 2:
            one.close()
        else:
            idle.append(one)
    begun = time.perf_counter()
    for number in range(1, 400):
        page.feed.add(progress(number))
    assert time.perf_counter() - begun < 5
    seen = 0
    while seen < 400:
        _, told = tab.next()
        seen = told["totals"]["batches"]
    for one in idle:
        one.close()
    assert asked(page, "/state")[0] == 200


def test_more_connections_than_there_may_be_are_refused(page: Page) -> None:
    tab = Listener(page)
    tab.next()
    held = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(120)]
    answers = []
    for one in held:
        one.settimeout(10)
        one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers.append(one.recv(12))
    assert b"HTTP/1.1 503" in answers
    page.feed.add(progress(0))
    assert tab.next()[1]["totals"]["batches"] == 1  # who was there before goes on
    for one in held:
        one.close()
    end = time.monotonic() + 10
    while asked(page, "/state")[0] == 503:
        assert time.monotonic() < end


def test_a_feed_tells_everything_to_who_missed_something() -> None:
    feed = Feed()
    assert feed.after(-1)[2]  # everything, for a new page
    feed.add(progress(0))
    number, text, whole = feed.after(-1)
    assert (number, whole) == (1, True)
    feed.add(progress(1))
    feed.add(progress(2))
    number, text, whole = feed.after(number)
    assert (number, len(text.split(b"\n")), whole) == (3, 2, False)
    assert feed.after(number) == (3, b"", False)
    for later in range(3, KEPT + 10):
        feed.add(progress(later))
    assert feed.after(number)[2]
    # Older points have become fewer: who has the former ones gets all.
    for later in range(KEPT + 10, NEWEST + OLDER):
        feed.add(progress(later))
    number = feed.after(-1)[0]
    feed.add(progress(NEWEST + OLDER))
    assert feed.after(number)[2]


def test_the_picture_keeps_the_units_of_the_last_micro_batch_with_rows() -> None:
    feed = Feed()
    feed.add(progress(0))
    feed.add(progress(1, units=(), input_rows=0))
    told = json.loads(feed.describe_all())
    assert told["batch"]["number"] == 1
    assert [unit["unit"] for unit in told["batch"]["units"]] == [0, 1]


def test_stopping_ends_the_connections(page: Page) -> None:
    tab = Listener(page)
    tab.next()
    begun = time.perf_counter()
    page.feed.end(None)
    page.stop()
    assert tab.next()[1]["status"] == "ended"
    with pytest.raises(EOFError):
        tab.next()
    assert not page.thread.is_alive()
    assert time.perf_counter() - begun < 4


def test_history_is_kept_beside_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    feed = Feed(keep=path)
    feed.add(progress(0))
    feed.end("gone")
    again = json.loads(Feed(keep=path).describe_all())
    assert len(again["points"]) == 1
    assert [text for _, text in again["errors"]] == ["gone"]
    assert again["status"] == "starting"


def test_a_history_that_cannot_be_kept_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    feed = Feed(keep=tmp_path / "file" / "history.json")
    feed.add(progress(0))
    feed.end(None)
    assert "cannot keep the page's history" in caplog.text


def test_any_query_can_have_a_page() -> None:
    query: Any = Query()
    query.name = "mine"
    page = serve(query, port=0)
    try:
        tab = Listener(page)
        assert tab.next()[1]["picture"]["title"] == "mine"
        query.report(0, 1)
        assert [tab.next()[1]["totals"]["batches"] for _ in range(2)] == [1, 2]
        threading.Timer(0.1, query.over.set).start()
        assert tab.next()[1]["status"] == "ended"
    finally:
        page.stop()
