"""A TLS certificate for a broker on this machine, in files as Java reads them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from thetajoin.errors import ThetaJoinError
from thetajoin.spark.session import find_java

_NAME, _DAYS = "broker", 30
# By its environment, as all users of a machine may see what a program was started with.
_PASSWORD = "THETAJOIN_STORE_PASSWORD"


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
