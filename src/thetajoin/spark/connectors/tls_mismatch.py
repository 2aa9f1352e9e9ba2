"""Why a broker that is there does not answer: it expects TLS, or does not know it.

Such a broker closes the connection, and Kafka's client tries again until its time is up. It says
no more than for a broker that is away, so it is asked a second time, in the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Nobody's, as a password must not be sent in the clear. A broker refuses it at once, also one
# without users, and a refusal shows that it has understood.
_LOGIN = {
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "username='thetajoin-nobody' password='none';",
}
TLS = {"kafka.security.protocol": "SASL_SSL", **_LOGIN}
PLAIN = {"kafka.security.protocol": "SASL_PLAINTEXT", **_LOGIN}


def mismatch(
    servers: str, options: Mapping[str, str], understands: Callable[[Mapping[str, str]], bool]
) -> str | None:
    """What to do about a broker that has not answered; None if it is not about TLS.

    options: Kafka's own, such as ``security.protocol``. understands: whether the broker answers
    anything to somebody with other options, `TLS` or `PLAIN`.

    >>> mismatch("host:9092", {"security.protocol": "PLAINTEXT"}, lambda asked: asked is TLS)[:24]
    'the broker at host:9092 '
    >>> mismatch("host:9092", {"security.protocol": "SSL"}, lambda asked: asked is TLS)
    """
    protocol = options.get("security.protocol", "PLAINTEXT")
    asked = protocol.upper().endswith("SSL")
    if not asked and understands(TLS):
        return (
            f"the broker at {servers} uses TLS, and security.protocol is {protocol}: set "
            "kafka.security.protocol to SSL, or SASL_SSL where users log in"
        )
    if asked and understands(PLAIN):
        return (
            f"the broker at {servers} does not use TLS on this port, and security.protocol is "
            f"{protocol}: give its port for TLS, or set kafka.security.protocol to PLAINTEXT, or "
            "SASL_PLAINTEXT where users log in"
        )
    if asked and _locked(options) and understands(TLS):
        return (
            f"the truststore {options['ssl.truststore.location']!r} seems empty without its "
            "password: give it, kafka.ssl.truststore.password"
        )
    return None


def _locked(options: Mapping[str, str]) -> bool:
    """Whether a truststore was given without a password, which PEM alone goes without.

    Java reads the certificates of a PKCS12 file only with it, and takes the rest for the whole.
    """
    form = options.get("ssl.truststore.type", "JKS")
    named = "ssl.truststore.location" in options
    return named and form.upper() != "PEM" and not options.get("ssl.truststore.password")
