"""Ports that speak TLS, plainly, nonsense or not at all, and what is told of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from thetajoin.spark.connectors import tls_probe
from thetajoin.spark.connectors.tls_probe import speaks_plainly, speaks_tls, unanswered

# What a server without a common version says to a client: an alert of TLS.
ALERT = bytes([21, 3, 3, 0, 2, 2, 70])


@contextmanager
def port(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """A port that answers what it is sent; with None it leaves the client waiting."""
    left: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            left.append(client)
            said = answer(client.recv(1000))
            if said is not None:
                client.sendall(said)
                client.shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for client in left:
        client.close()


def echo(question: bytes) -> bytes:
    """A broker's answer: its size, and the number of the question."""
    return b"\0\0\0\4" + question[8:12]


@pytest.mark.parametrize(
    ("answer", "tls", "plain"),
    [
        (lambda _: ALERT, True, False),
        (echo, False, True),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", False, False),
        (lambda _: b"", False, False),
        (lambda _: None, False, False),
    ],
    ids=["tls", "plain", "http", "closed", "silent"],
)
def test_what_a_port_speaks(
    answer: Callable[[bytes], bytes | None],
    tls: bool,
    plain: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else is there, nothing is claimed of it."""
    monkeypatch.setattr(tls_probe, "PATIENCE_S", 0.5)
    with port(answer) as server:
        assert (speaks_tls(server), speaks_plainly(server)) == (tls, plain)
        said = unanswered(server, {})
        assert (said is not None) == tls
        said = unanswered(server, {"security.protocol": "SASL_SSL"})
        assert (said is not None) == plain


def test_servers_as_kafka_takes_them() -> None:
    """Several, with a protocol before them; one that is none, or not there, is passed over."""
    with port(lambda _: ALERT) as server:
        assert unanswered(f"nonsense, SSL://{server}", {}) is not None
    assert unanswered(server, {}) is None
    assert unanswered("[::1]:1,host", {"security.protocol": "SSL"}) is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, True),
        ({"ssl.truststore.password": "x"}, False),
        ({"ssl.truststore.type": "PEM"}, False),
    ],
)
def test_a_truststore_without_a_password(given: dict[str, str], told: bool) -> None:
    options = {"security.protocol": "SSL", "ssl.truststore.location": "/t.p12", **given}
    with port(lambda _: ALERT) as server:
        assert (unanswered(server, options) is not None) == told
