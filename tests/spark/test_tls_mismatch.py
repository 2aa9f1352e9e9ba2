"""What is told of a broker that has not answered, by what it understands."""

from __future__ import annotations

import pytest

from thetajoin.jobs.kafka import PLAIN, TLS, mismatch

STORE = {"ssl.truststore.location": "/t.p12"}


@pytest.mark.parametrize(
    ("options", "understood", "told"),
    [
        ({}, TLS, "uses TLS, and security.protocol is PLAINTEXT"),
        ({"security.protocol": "SASL_PLAINTEXT"}, TLS, "security.protocol is SASL_PLAINTEXT"),
        ({}, PLAIN, None),  # it wants a login, or is slow
        ({}, None, None),
        ({"security.protocol": "SASL_SSL"}, PLAIN, "does not use TLS on this port"),
        ({"security.protocol": "SSL", **STORE}, PLAIN, "does not use TLS on this port"),
        ({"security.protocol": "SSL", **STORE}, TLS, "'/t.p12' seems empty without its password"),
        ({"security.protocol": "SSL", **STORE}, None, None),
        ({"security.protocol": "SSL", **STORE, "ssl.truststore.password": "x"}, TLS, None),
        ({"security.protocol": "SSL", **STORE, "ssl.truststore.type": "PEM"}, TLS, None),
        ({"security.protocol": "SSL"}, TLS, None),
    ],
)
def test_what_is_told(
    options: dict[str, str], understood: dict[str, str] | None, told: str | None
) -> None:
    line = mismatch("h:1", options, lambda asked: asked is understood)
    assert (line is None) == (told is None)
    assert (told or "") in (line or "")
