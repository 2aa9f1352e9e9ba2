"""What Java says where TLS fails between Kafka's client and a broker, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

_HANDSHAKE = "SslAuthenticationException"
_SAID = re.compile(r"javax\.net\.ssl\.SSL\w*Exception: (.+)")
# Java checks whom a certificate is for last, so those of strangers never come this far.
_HOST = re.compile(r"No subject alternative .+|No name matching .+")
_EXPIRED = re.compile(r"CertificateExpiredException: (.+)")
_STRANGER = "PKIX path"
# What a broker says to a client without a certificate; Java 17 says the first.
_CLIENT = re.compile(r"Received fatal alert: (?:bad_certificate|certificate_required)")
# Kafka calls truststores so too.
_STORE = re.compile(r"Failed to load (?:PEM )?SSL keystore (.+?)(?: of type (\w+))?$", re.M)


def tls_reason(text: str, servers: str, options: Mapping[str, str]) -> str | None:
    """Why there is no TLS, and what to do; None if an error is about something else.

    options: Kafka's own, such as ``ssl.truststore.location``.

    >>> said = "KafkaException: Failed to load SSL keystore /t.p12 of type JKS"
    >>> cause = "Caused by: java.nio.file.NoSuchFileException: /t.p12"
    >>> tls_reason(f"{said}\\n{cause}", "host:9092", {})
    "there is no file '/t.p12': give the truststore's full path, kafka.ssl.truststore.location"
    """
    store = _STORE.search(text)
    if store is not None:
        return _unread(text, store[1], store[2] or "PEM", options)
    if _HANDSHAKE not in text:
        return None
    said = _SAID.findall(text)
    whose = f"the certificate of the broker at {servers}"
    for found in filter(None, map(_HOST.search, said)):
        return (
            f"{whose} is for another host ({found[0].rstrip('.')}): write the broker's name as "
            "its certificate has it, or have a certificate made for this one"
        )
    expired = _EXPIRED.search(text)
    if expired is not None:
        return f"{whose}, or its CA's, has expired ({expired[1].strip()}): it needs a new one"
    if any(_STRANGER in line for line in said):
        location = options.get("ssl.truststore.location")
        known = f"the truststore {location!r} does not know its CA" if location else "it is unknown"
        return (
            f"{whose} is not trusted, as {known}: name a truststore with the CA's certificate, "
            "kafka.ssl.truststore.location"
        )
    if any(map(_CLIENT.search, said)) and "ssl.keystore.location" not in options:
        return (
            f"the broker at {servers} asks for a certificate of the client: name a keystore that "
            "has one, kafka.ssl.keystore.location, and its password, kafka.ssl.keystore.password"
        )
    told = said[-1].strip() if said else "the broker does not say why"
    return f"no TLS with the broker at {servers}: {told}"


def _unread(text: str, file: str, form: str, options: Mapping[str, str]) -> str:
    kind = "keystore" if file == options.get("ssl.keystore.location") else "truststore"
    option = f"kafka.ssl.{kind}"
    if "NoSuchFileException" in text:
        return f"there is no file {file!r}: give the {kind}'s full path, {option}.location"
    if "AccessDeniedException" in text:
        return f"the {kind} {file!r} may not be read by this user: change the file's rights"
    if "password was incorrect" in text:
        return (
            f"the password of the {kind} {file!r} is wrong: give the right one, {option}.password"
        )
    return (
        f"{file!r} is no {kind} of type {form}: give another file, {option}.location, or say what "
        f"it is, {option}.type"
    )
