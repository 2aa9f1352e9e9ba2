"""An Apache Kafka broker on this machine's loopback: for trying things out, tests and benchmarks.

One process is broker and controller (KRaft), and everything it writes is in one folder. Nothing
here is fit for production: one copy of each message, and its own traffic is not encrypted.
"""

from __future__ import annotations

import base64
import os
import random
import secrets
import subprocess
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from thetajoin.errors import ThetaJoinError
from thetajoin.jobs.jars import cache_folder, fetch
from thetajoin.spark.session import find_java

VERSION = "4.3.1"
COORDINATE = f"org.apache.kafka:kafka_2.13:{VERSION}"
HOST = "127.0.0.1"
TRIES = 5  # pairs of ports, as any may be taken
START_S = 120
_PORTS = range(20_000, 30_000)
_LOGGING = """<Configuration><Appenders><Console name="out"><PatternLayout pattern="%p %m%n"/>
</Console></Appenders><Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>"""
# What the broker logs once it takes messages, and where its port is taken.
_STARTED, _TAKEN = "Kafka Server started", "Address already in use"
# Where it has users: the broker's own name, and what SCRAM asks for at the least.
_SELF, _SCRAM, _ROUNDS = "broker", "SCRAM-SHA-256", 4096
# kafka_2.13 leaves the choice of a log to whoever runs it.
_LOG_JARS = ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",)
_NAME, _DAYS = "broker", 30
# By its environment, as all users of a machine may see what a program was started with.
_PASSWORD = "THETAJOIN_STORE_PASSWORD"


def broker_jars() -> list[Path]:
    """The broker's jars, downloaded where they are not at hand: about 45 MB."""
    folder = cache_folder() / f"broker-{VERSION}"
    if not folder.is_dir():
        fetch((COORDINATE, *_LOG_JARS), folder, transitive=True)
    return sorted(folder.glob("*.jar"))


class Broker:
    """A broker that runs inside a ``with`` block; `servers` is its ``host:port``.

    partitions: of topics that are made when they are first named. users: passwords of those who may
    log in, by PLAIN or SCRAM-SHA-256; without any, nobody has to. tls: its certificate, if clients
    are to use TLS. settings: more of Kafka's own. With another instance on the same folder, and the
    same `port`, a broker goes on with what it had.
    """

    def __init__(
        self,
        folder: Path,
        *,
        partitions: int = 2,
        port: int | None = None,
        users: Mapping[str, str] | None = None,
        tls: Keystores | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self._partitions = partitions
        self.port = port
        self._users = dict(users or {})
        self._tls = tls
        self._more = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it takes messages; takes some seconds."""
        jars = broker_jars()
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = [self.port] if self.port is not None else random.sample(_PORTS, TRIES)
        for port in wanted:
            self.port = port
            if self._try_start(jars):
                return
        raise ThetaJoinError(f"Kafka did not start: {_STARTED!r} is not in {self._log}")

    def stop(self) -> None:
        """End the process; its folder stays."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self.kill()

    def kill(self) -> None:
        """End the process at once, as a machine that loses its power does; its folder stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def _log(self) -> Path:
        return self.folder / "broker.log"

    def _try_start(self, jars: list[Path]) -> bool:
        """Whether it runs; False if its ports are taken."""
        settings = self._write_settings()
        java = [str(find_java().program), "-Xmx512m", "-XX:+UseSerialGC"]
        logging = self.folder / "log4j2.xml"
        logging.write_text(_LOGGING)
        java += [f"-Dlog4j2.configurationFile={logging}"]
        java += ["-cp", os.pathsep.join(str(jar) for jar in jars)]
        if not (self.folder / "data" / "meta.properties").exists():
            # A name that begins with a dash would be taken for an option.
            name = base64.b64encode(uuid.uuid4().bytes, b"ab").decode().rstrip("=")
            form = ["kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)]
            for user, password in self._users.items():
                who = f"name={user},password={password},iterations={_ROUNDS}"
                form += ["--add-scram", f"{_SCRAM}=[{who}]"]
            done = subprocess.run([*java, *form], capture_output=True, text=True, check=False)
            if done.returncode:
                raise ThetaJoinError(
                    f"Kafka's folder could not be made: {(done.stderr or done.stdout)[-300:]}"
                )
        with self._log.open("wb") as log:
            command = [*java, "kafka.Kafka", str(settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        latest = time.monotonic() + START_S
        while time.monotonic() < latest:
            said = self._log.read_text(errors="replace")
            if _STARTED in said:
                return True
            if process.poll() is not None:
                if _TAKEN in said:
                    return False
                last = (said.splitlines() or ["it said nothing"])[-1]
                raise ThetaJoinError(f"Kafka did not start: {last} (its log: {self._log})")
            time.sleep(0.1)
        self.stop()
        raise ThetaJoinError(f"Kafka did not start within {START_S} s (its log: {self._log})")

    def _write_settings(self) -> Path:
        assert self.port is not None
        inner = self.port + 10_000
        kind = ("SASL_" if self._users else "") + ("SSL" if self._tls else "PLAINTEXT")
        given = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{inner}",
            "listeners": f"{kind}://{HOST}:{self.port},CONTROLLER://{HOST}:{inner}",
            "advertised.listeners": f"{kind}://{HOST}:{self.port}",
            "inter.broker.listener.name": kind,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{kind}:{kind},CONTROLLER:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "num.partitions": self._partitions,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **(self._login_settings(kind) if self._users else {}),
            **(self._tls.settings if self._tls else {}),
            **self._more,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return file

    def _login_settings(self, kind: str) -> dict[str, object]:
        """The settings by which users log in, and the broker itself as one of them."""
        module = "org.apache.kafka.common.security"
        own = secrets.token_hex(8)
        known = {_SELF: own, **self._users}
        users = " ".join(f'user_{user}="{password}"' for user, password in known.items())
        plain = f'{module}.plain.PlainLoginModule required username="{_SELF}" password="{own}"'
        scram = f"{module}.scram.ScramLoginModule"
        name = f"listener.name.{kind.lower()}"
        return {
            "sasl.enabled.mechanisms": f"PLAIN,{_SCRAM}",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{name}.plain.sasl.jaas.config": f"{plain} {users};",
            f"{name}.{_SCRAM.lower()}.sasl.jaas.config": f"{scram} required;",
        }


@dataclass(frozen=True)
class Keystores:
    """A broker's key with its certificate, and a truststore with the certificate alone."""

    key: Path
    trust: Path
    password: str = field(repr=False)

    @property
    def settings(self) -> dict[str, object]:
        """What a broker needs; it trusts itself, as it is a client of its own too."""
        return {
            "ssl.keystore.location": self.key,
            "ssl.keystore.password": self.password,
            "ssl.truststore.location": self.trust,
            "ssl.truststore.password": self.password,
        }


def make_keystores(folder: Path, password: str, *, host: str = "ip:127.0.0.1") -> Keystores:
    """A certificate that nobody else has signed, for one host: ``ip:...`` or ``dns:...``.

    The password has six characters or more. Costs the start of three JVMs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = Keystores(folder / "broker.p12", folder / "truststore.p12", password)
    certificate = folder / "broker.pem"
    named = ["-alias", _NAME, "-storetype", "PKCS12", "-storepass:env", _PASSWORD]
    pair = ["-keyalg", "EC", "-dname", f"CN={_NAME}", "-validity", str(_DAYS)]
    for words in (
        ["-genkeypair", "-keystore", str(made.key), *pair, "-ext", f"SAN={host}"],
        ["-exportcert", "-keystore", str(made.key), "-rfc", "-file", str(certificate)],
        ["-importcert", "-keystore", str(made.trust), "-file", str(certificate), "-noprompt"],
    ):
        command = [str(find_java().program.with_name("keytool")), *words, *named]
        environment = os.environ | {_PASSWORD: password}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ThetaJoinError(f"keytool {words[0]}: {(done.stdout + done.stderr).strip()}")
    return made
