"""The page's server: Starlette on uvicorn, on loopback, in a thread of the driver.

```
page = serve(query)
print(page.address)
```
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from thetajoin.errors import OptionError
from thetajoin.jobs.history import History, Point, load, save
from thetajoin.jobs.progress import Follower, JoinProgress
from thetajoin.secrets import hide_passwords, redact

KEPT = 100  # messages, for readers that were too slow
SAVE_S = 10.0  # between two writes of the history's file
STARTING, RUNNING, ENDED, FAILED = "starting", "running", "ended", "failed"
_FIELDS = tuple(field.name for field in fields(Point))
_log = logging.getLogger(__name__)
HOST = "127.0.0.1"
PORT = 4050  # or any other that is free, where none is asked for
NAMES = (HOST, "localhost")  # what a browser may call us: no other name leads here by itself
MOST = 100  # connections at once
ALIVE_S = 15.0  # between signs of life on a quiet connection


@dataclass(frozen=True)
class Drawn:
    """A source: its name, where it is, and whether it grows."""

    name: str
    place: str = ""
    stream: bool = True


@dataclass(frozen=True)
class Picture:
    """A plan as the page draws it; what is not known is left out.

    interval: seconds between micro-batches, where the trigger says so. text: the plan in full.
    """

    title: str = "streaming join"
    query: str = ""
    condition: str = ""
    window: str = ""
    routing: str = ""
    sources: tuple[Drawn, ...] = ()
    sink: str = ""
    interval: float | None = None
    text: str = ""


def picture_of(plan: Any, **known: Any) -> Picture:
    """A picture of a plan of `tj.explain`; `known` are further fields.

    >>> import thetajoin as tj, pyarrow as pa
    >>> table = pa.table({"a": [1, 2]})
    >>> picture_of(tj.explain(table, table, "l.a < r.a"), title="pairs").condition
    'inner join on l.a < r.a'
    """
    join = getattr(plan, "join", plan)  # of an aggregate's plan
    return Picture(
        condition=f"{join.how} join on {join.condition}",
        window=join.window,
        routing=join.routing or "",
        text=str(plan),
        **known,
    )


class Feed:
    """A query's history as messages; may be used from any thread.

    keep: a file for the history, which is read at the start and written now and then.
    """

    def __init__(self, picture: Picture | None = None, keep: Path | None = None) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.picture = picture or Picture()
        self._keep = keep
        self._history = History() if keep is None else load(keep)
        self._lock = threading.RLock()
        self._messages: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._number = 0
        self._status = STARTING
        self._error: str | None = None
        self._batch: dict[str, Any] | None = None
        self._whole: tuple[int, bytes] | None = None
        self._saved = time.monotonic()

    def add(self, progress: JoinProgress) -> None:
        """Take in a micro-batch, and send it to the readers."""
        with self._lock:
            thinned = self._history.thinned
            point = self._history.add(progress)
            # A micro-batch that only moves the watermark has no units: the picture keeps the last.
            units = [] if self._batch is None else self._batch["units"]
            self._batch = _describe_batch(progress)
            self._batch["units"] = self._batch["units"] or units
            self._status = RUNNING
            self._tell(point, whole=thinned != self._history.thinned)
        if time.monotonic() - self._saved > SAVE_S:
            self.save()

    def end(self, error: str | None) -> None:
        """Take in that the query has ended."""
        with self._lock:
            self._status, self._error = (ENDED if error is None else FAILED), error
            if error is not None:
                self._history.errors.append((round(time.time(), 3), error))
            self._tell(None)
        self.save()

    def _tell(self, point: Point | None, *, whole: bool = False) -> None:
        self._number += 1
        if whole:  # the points have changed, so readers get all of them again
            self._messages.clear()
        else:
            step = self._describe_now() | {"point": None if point is None else _values(point)}
            self._messages.append((self._number, _encode(step)))
        self.changed()

    def after(self, number: int) -> tuple[int, bytes, bool]:
        """What is new since message `number`, and whether that is the whole history.

        Nothing new is no bytes. Each message is a line of JSON.
        """
        with self._lock:
            if number == self._number:
                return number, b"", False
            missing = [text for at, text in self._messages if at > number]
            if number >= 0 and len(missing) == self._number - number:
                return self._number, b"\n".join(missing), False
            return self._number, self.describe_all(), True

    def describe_all(self) -> bytes:
        """All that is known, as a line of JSON."""
        with self._lock:
            if self._whole is None or self._whole[0] != self._number:
                whole = self._describe_now() | {
                    "picture": asdict(self.picture),
                    "fields": _FIELDS,
                    "points": [_values(point) for point in self._history.points],
                }
                self._whole = self._number, _encode(whole)
            return self._whole[1]

    def _describe_now(self) -> dict[str, Any]:
        return {
            "number": self._number,
            "status": self._status,
            "error": self._error,
            "errors": list(self._history.errors),
            "totals": asdict(self._history.totals),
            "percentiles": self._history.percentiles(),
            "batch": self._batch,
        }

    def save(self) -> None:
        """Write the history's file, if there is to be one."""
        if self._keep is None:
            return
        self._saved = time.monotonic()
        with self._lock:
            text = self._history.to_json()
        try:
            save(text, self._keep)
        except OSError as error:
            _log.warning("thetajoin: cannot keep the page's history: %s", error)


def _values(point: Point) -> list[Any]:
    return [getattr(point, name) for name in _FIELDS]


def _encode(message: dict[str, Any]) -> bytes:
    """A message as a line of JSON; addresses in it are without the password they may have.

    >>> _encode({"sink": "jdbc://me:secret@host/db"})
    b'{"sink":"jdbc://me:[hidden]@host/db"}'
    """
    return redact(hide_passwords(json.dumps(message, separators=(",", ":")))).encode()


def _describe_batch(p: JoinProgress) -> dict[str, Any]:
    """The newest micro-batch, for the picture of the plan."""
    return {
        "number": p.batch,
        "ms": p.batch_ms,
        "rows": p.input_rows,
        "watermark": p.watermark,
        "hits": p.cache_hits,
        "misses": p.cache_misses,
        "sent": sum(unit.received_bytes for unit in p.units),
        "sink": p.sink,
        "out": p.output_rows if p.output_rows is not None else p.matches + p.unmatched,
        "sources": [{"what": s.description, "rows": s.rows} for s in p.sources],
        "units": [
            {
                "join": unit.join,
                "unit": unit.unit,
                "received": unit.received,
                "matches": unit.matches,
                "stored": unit.window_left + unit.window_right,
                "segments": unit.segments,
                "state": unit.state_bytes,
                "late": unit.late_rows,
                "from": unit.origin,
                "ms": unit.ms,
            }
            for unit in p.units
        ],
    }


class Page:
    """A page about one query, served until `stop`.

    port: where; None for 4050 or, where that is taken, any other. keep: a file for the history.
    """

    def __init__(
        self, picture: Picture | None = None, *, port: int | None = None, keep: Path | None = None
    ) -> None:
        self.feed = Feed(picture, keep)
        self._socket = _bind(port)
        self.port: int = self._socket.getsockname()[1]
        self.follower: Follower | None = None
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._leaving = False
        config = uvicorn.Config(
            _make_app(self),
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MOST,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run, name="thetajoin-page", daemon=True)

    @property
    def address(self) -> str:
        """What to type into a browser."""
        return f"http://{HOST}:{self.port}/"

    def start(self) -> Self:
        """Begin to serve."""
        self.feed.changed = self._tell
        self.thread.start()
        return self

    def stop(self) -> None:
        """Tell readers that it is over, and stop serving."""
        if self.follower is not None:
            self.follower.stop()
        self.feed.save()
        self._leaving = True
        self._tell()
        self._server.should_exit = True
        self.thread.join(timeout=5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        finally:
            self._loop.close()

    def _tell(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """The feed as server-sent events; who reads slowly gets everything anew, never a queue."""
        seen = -1
        while True:
            news, leaving = self._news, self._leaving
            seen, text, whole = self.feed.after(seen)
            if whole:
                yield b"event: whole\ndata: " + text + b"\n\n"
            elif text:
                for line in text.split(b"\n"):
                    yield b"event: step\ndata: " + line + b"\n\n"
            if leaving:
                return
            try:
                await asyncio.wait_for(news.wait(), ALIVE_S)
            except TimeoutError:
                yield b": still here\n\n"


def serve(
    query: Any,
    *,
    port: int | None = None,
    picture: Picture | None = None,
    keep: Path | None = None,
) -> Page:
    """Serve a page about a running query of any session; `stop` it when the query has ended."""
    page = Page(picture or Picture(title=query.name or "streaming query"), port=port, keep=keep)
    page.follower = Follower(query, page.feed.add, page.feed.end)
    page.start()
    page.follower.start()
    return page


def _bind(port: int | None) -> socket.socket:
    """A socket on loopback, and nowhere else."""
    try:
        return socket.create_server((HOST, PORT if port is None else port))
    except OverflowError:
        raise OptionError(f"port {port} is not valid: give a number from 0 to 65535") from None
    except OSError as error:
        if port is None:
            return socket.create_server((HOST, 0))
        raise OptionError(
            f"the page cannot have port {port}: {error.strerror or error}; choose another, "
            "or 0 for any that is free"
        ) from error


def _make_app(page: Page) -> Starlette:
    html, policy = _load_document()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    async def index(_request: Request) -> Response:
        return HTMLResponse(html, headers=headers)

    async def state(_request: Request) -> Response:
        text = page.feed.describe_all()
        return Response(text, media_type="application/json", headers=headers)

    async def events(_request: Request) -> Response:
        return StreamingResponse(page.messages(), media_type="text/event-stream", headers=headers)

    return Starlette(
        routes=[Route("/", index), Route("/state", state), Route("/events", events)],
        # Another site's name that leads here (DNS rebinding) is not answered.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=NAMES, www_redirect=False)],
    )


def _load_document() -> tuple[str, str]:
    """The page as one document, and a policy by which nothing else is run or loaded."""
    files = resources.files("thetajoin.jobs") / "assets"
    html, style, script = (
        (files / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    html = html.replace("/*style*/", style).replace("/*script*/", script)
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return html, policy


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
