"""Brokers with TLS: joins over it, and what users get wrong about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pipeline_data import write_job
from spark.kafka_jobs import (
    RIGHT,
    Options,
    expected,
    holding,
    job,
    login,
    message,
    pairs_in,
    pairs_into,
    readings,
    refusal,
    send,
    table,
    watched,
)
from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.broker import Broker, Keystores, make_keystores

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

STORE, APP = "pass-of-store-5521", "pass-of-app-7412"
SECRETS = {"STORE": STORE, "APP": APP}
SOON_S = 90  # most of it is the start of Spark; a client that hangs takes minutes


@dataclass(frozen=True)
class Brokers:
    """A broker of each kind, and truststores: the right one, and one of somebody else."""

    tls: str
    login: str
    elsewhere: str
    plain: str
    own: Keystores
    strange: Keystores
    misnamed: Keystores

    def options(self, protocol: str, **given: str) -> Options:
        """How to speak with the broker of a protocol, with passwords as `given`."""
        store = {
            "kafka.security.protocol": protocol,
            "kafka.ssl.truststore.location": str(self.own.trust),
            "kafka.ssl.truststore.password": given.get("STORE", "${STORE}"),
        }
        user = login("SCRAM-SHA-256", "app", given.get("APP", "${APP}"), protocol)
        return store | user if protocol == "SASL_SSL" else store


@pytest.fixture(scope="module")
def brokers(
    kafka: None, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("tls")
    try:
        own, strange = (make_keystores(folder / name, STORE) for name in ("own", "strange"))
        misnamed = make_keystores(folder / "misnamed", STORE, host="dns:elsewhere.example")
    except (OSError, ThetaJoinError) as error:
        pytest.skip(f"no keytool here: {error}")
    with ExitStack() as stack:
        kinds: dict[str, dict[str, Any]] = {
            "tls": {"tls": own},
            "login": {"tls": own, "users": {"app": APP}},
            "elsewhere": {"tls": misnamed},
        }
        running = {
            name: stack.enter_context(Broker(folder / f"broker-{name}", **given)).servers
            for name, given in kinds.items()
        }
        yield Brokers(**running, plain=broker, own=own, strange=strange, misnamed=misnamed)


def encrypted_job(servers: str, options: Options) -> str:
    """Two topics into a third, all with the same options."""
    left, right = table("sources.l", options), RIGHT + "\n" + table("sources.r", options)
    text = job(servers, ("in_l", "in_r"), pairs_into(servers, "pairs"), left, right)
    return text + table("sink", options)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_two_topics_into_a_third(
    spark: Any, brokers: Brokers, tmp_path: Path, protocol: str
) -> None:
    """All pairs arrive, and no file, line or page has a password in it, at any time."""
    servers = brokers.tls if protocol == "SSL" else brokers.login
    known = brokers.options(protocol, **SECRETS)
    left, right = readings(0, 40), readings(1, 40)
    for topic, rows in (("in_l", left), ("in_r", right)):
        send(spark, servers, topic, [message(row) for row in rows], known)
    watched(tmp_path, encrypted_job(servers, brokers.options(protocol)), SECRETS)
    assert pairs_in(spark, servers, "pairs", known) == expected(left, right)


def told(folder: Path, servers: str, options: Options, **secrets: str) -> str:
    """The one line of a job that cannot speak with its broker; says it soon, and no password."""
    write_job(folder, encrypted_job(servers, options))
    began = time.monotonic()
    line = refusal(folder, **(SECRETS | secrets))
    assert time.monotonic() - began < SOON_S
    for secret in (*SECRETS.values(), *secrets.values()):
        assert secret not in line
        assert holding(folder, secret) == []
    return line.removeprefix("thetajoin: ").removeprefix("job.toml: ")


def test_a_broker_that_is_not_trusted(brokers: Brokers, tmp_path: Path) -> None:
    """A truststore without its CA, and none at all."""
    strange = str(brokers.strange.trust)
    options = brokers.options("SSL") | {"kafka.ssl.truststore.location": strange}
    whose = f"source 'l': the certificate of the broker at {brokers.tls} is not trusted, as"
    line = told(tmp_path, brokers.tls, options)
    assert line == (
        f"{whose} the truststore {strange!r} does not know its CA: name a truststore with the CA's "
        "certificate, kafka.ssl.truststore.location"
    )
    line = told(tmp_path, brokers.tls, {"kafka.security.protocol": "SSL"})
    assert line.startswith(f"{whose} it is unknown: name a truststore")


def test_a_certificate_for_another_host(brokers: Brokers, tmp_path: Path) -> None:
    trust = {"kafka.ssl.truststore.location": str(brokers.misnamed.trust)}
    line = told(tmp_path, brokers.elsewhere, brokers.options("SSL") | trust)
    assert line == (
        f"source 'l': the certificate of the broker at {brokers.elsewhere} is for another host (No "
        "subject alternative names matching IP address 127.0.0.1 found): write the broker's name "
        "as its certificate has it, or have a certificate made for this one"
    )


def test_tls_on_one_side_only(brokers: Brokers, tmp_path: Path) -> None:
    """Kafka's client says the same of a broker that is away."""
    line = told(tmp_path, brokers.tls, {"kafka.security.protocol": "PLAINTEXT"})
    assert line == (
        f"source 'l': the broker at {brokers.tls} uses TLS, and security.protocol is PLAINTEXT: "
        "set kafka.security.protocol to SSL, or SASL_SSL where users log in"
    )
    line = told(tmp_path, brokers.plain, brokers.options("SSL"))
    assert line == (
        f"source 'l': the broker at {brokers.plain} does not use TLS on this port, and "
        "security.protocol is SSL: give its port for TLS, or set kafka.security.protocol to "
        "PLAINTEXT, or SASL_PLAINTEXT where users log in"
    )


def test_a_truststore_that_cannot_be_read(brokers: Brokers, tmp_path: Path) -> None:
    """One that is not there, a wrong password, and none."""
    right, missing = str(brokers.own.trust), str(tmp_path / "none.p12")
    options = brokers.options("SSL")
    line = told(tmp_path, brokers.tls, options | {"kafka.ssl.truststore.location": missing})
    assert line == (
        f"source 'l': there is no file {missing!r}: give the truststore's full path, "
        "kafka.ssl.truststore.location"
    )
    line = told(tmp_path, brokers.tls, options, STORE="wrong-pass-1")
    assert line == (
        f"source 'l': the password of the truststore {right!r} is wrong: give the right one, "
        "kafka.ssl.truststore.password"
    )
    del options["kafka.ssl.truststore.password"]
    line = told(tmp_path, brokers.tls, options)
    assert line == (
        f"source 'l': the truststore {right!r} seems empty without its password: give it, "
        "kafka.ssl.truststore.password"
    )


def test_a_wrong_password_over_tls(brokers: Brokers, tmp_path: Path) -> None:
    """TLS does not hide what the login says."""
    line = told(tmp_path, brokers.login, brokers.options("SASL_SSL"), APP="wrong-pass-2")
    assert f"source 'l': the broker at {brokers.login} refuses the login: Authentication" in line


def test_a_broker_that_asks_for_a_certificate(brokers: Brokers, tmp_path: Path) -> None:
    asking = {"ssl.client.auth": "required"}
    with Broker(tmp_path / "broker", tls=brokers.own, settings=asking) as own:
        line = told(tmp_path / "job", own.servers, brokers.options("SSL"))
    assert line == (
        f"source 'l': the broker at {own.servers} asks for a certificate of the client: name a "
        "keystore that has one, kafka.ssl.keystore.location, and its password, "
        "kafka.ssl.keystore.password"
    )
