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
import socket
import threading
from collections.abc import AsyncIterator
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
from thetajoin.spark.follow import Follower
from thetajoin.spark.page.feed import Feed
from thetajoin.spark.page.picture import Picture

HOST = "127.0.0.1"
PORT = 4050  # or any other that is free, where none is asked for
NAMES = (HOST, "localhost")  # what a browser may call us: no other name leads here by itself
MOST = 100  # connections at once
ALIVE_S = 15.0  # between signs of life on a quiet connection


class Page:
    """A page about one query, served until `stop`.

    port: where; None for 4050 or, where that is taken, any other. keep: a file for the history.
    """

    def __init__(
        self, picture: Picture | None = None, *, port: int | None = None, keep: Path | None = None
    ) -> None:
        self.feed = Feed(picture, keep)
        self._socket = _bound(port)
        self.port: int = self._socket.getsockname()[1]
        self.follower: Follower | None = None
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self._leaving = False
        config = uvicorn.Config(
            _app(self),
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
        """Tell those who look that it is over, and serve no longer."""
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


def _bound(port: int | None) -> socket.socket:
    """A socket on loopback, and nowhere else."""
    try:
        return socket.create_server((HOST, PORT if port is None else port))
    except OverflowError:
        raise OptionError(f"port {port} is not one: give a number up to 65535") from None
    except OSError as error:
        if port is None:
            return socket.create_server((HOST, 0))
        raise OptionError(
            f"the page cannot have port {port}: {error.strerror or error}; choose another, "
            "or 0 for any that is free"
        ) from error


def _app(page: Page) -> Starlette:
    html, policy = _document()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    async def index(_request: Request) -> Response:
        return HTMLResponse(html, headers=headers)

    async def state(_request: Request) -> Response:
        text = page.feed.everything()
        return Response(text, media_type="application/json", headers=headers)

    async def events(_request: Request) -> Response:
        return StreamingResponse(page.messages(), media_type="text/event-stream", headers=headers)

    return Starlette(
        routes=[Route("/", index), Route("/state", state), Route("/events", events)],
        # Another site's name that leads here (DNS rebinding) is not answered.
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=NAMES, www_redirect=False)],
    )


def _document() -> tuple[str, str]:
    """The page as one document, and a policy by which nothing else is run or loaded."""
    files = resources.files("thetajoin.spark.page")
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
