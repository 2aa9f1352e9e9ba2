"""Why a broker that is there does not answer: it expects TLS, or does not know it.

Such a broker closes the connection, and Kafka's client tries again until its time is up. It says
no more than for a broker that is away, so the port is asked here without it.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping

PATIENCE_S = 3.0
MOST = 3  # servers that are asked
_SERVER = re.compile(r"(?:\w+://)?\[?([\w.:%-]+?)\]?:(\d+)")
# ApiVersions, version 0, which brokers answer before anybody logs in, and a number that comes back.
_NUMBER = b"7412"
_QUESTION = struct.pack(">ihh4sh", 10, 18, 0, _NUMBER, -1)


def unanswered(servers: str, options: Mapping[str, str]) -> str | None:
    """What to do about a broker that has not answered; None if it is not about TLS.

    options: Kafka's own, such as ``security.protocol``. Takes some seconds.
    """
    protocol = options.get("security.protocol", "PLAINTEXT")
    asked = protocol.upper().endswith("SSL")
    for server in servers.split(",")[:MOST]:
        if asked and speaks_plainly(server):
            return (
                f"the broker at {servers} does not use TLS on this port, and security.protocol is "
                f"{protocol}: give its port for TLS, or set kafka.security.protocol to PLAINTEXT, "
                "or SASL_PLAINTEXT where users log in"
            )
        if not asked and speaks_tls(server):
            return (
                f"the broker at {servers} uses TLS, and security.protocol is {protocol}: set "
                "kafka.security.protocol to SSL, or SASL_SSL where users log in"
            )
        if asked and _locked(options) and speaks_tls(server):
            return (
                f"the truststore {options['ssl.truststore.location']!r} seems empty without its "
                "password: give it, kafka.ssl.truststore.password"
            )
    return None


def speaks_tls(server: str) -> bool:
    """Whether a port answers to TLS, with whatever certificate; nothing is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connected(server) as port, context.wrap_socket(port):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # a refusal, but one by TLS
    except (OSError, ValueError):
        return False


def speaks_plainly(server: str) -> bool:
    """Whether a broker answers without TLS."""
    try:
        with _connected(server) as port:
            port.sendall(_QUESTION)
            with port.makefile("rb") as answer:
                return answer.read(8)[4:] == _NUMBER
    except (OSError, ValueError):
        return False


def _connected(server: str) -> socket.socket:
    found = _SERVER.fullmatch(server.strip())
    if found is None:
        raise ValueError(server)
    return socket.create_connection((found[1], int(found[2])), PATIENCE_S)


def _locked(options: Mapping[str, str]) -> bool:
    """Whether a truststore was given without a password, which PEM alone goes without.

    Java reads the certificates of a PKCS12 file only with it, and takes the rest for the whole.
    """
    form = options.get("ssl.truststore.type", "JKS")
    named = "ssl.truststore.location" in options
    return named and form.upper() != "PEM" and not options.get("ssl.truststore.password")
