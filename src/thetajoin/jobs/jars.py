"""Spark's connectors to other systems: which release fits which Spark, and their jars.

Jars come from Maven repositories, by the Ivy that is part of PySpark, and are kept in a folder.

Spark's own `spark.jars.packages` asks for all that a connector's description names, of the same
version, whether or not a repository has it. Here each jar is named, so what was tried is what runs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import quoteattr

from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.spark.session import find_java
from thetajoin.spark.versions import SPARKS, minor

# A folder of jars to use instead of fetching any.
JARS = "THETAJOIN_JARS"
JAVA = "spark.driver.extraJavaOptions"
_LONGEST_S = 600
_HEAD = '<ivy-module version="2.0"><info organisation="thetajoin" module="jars"/>'
_CONF = '<configurations><conf name="default"/></configurations>'


@dataclass(frozen=True)
class Connector:
    """What Spark needs in order to read and write one kind of system.

    releases: for each Spark all jars, as ``group:artifact:version``; the first is the connector
    itself. java: options for the JVM. settings: of the session.
    """

    name: str
    use: str
    releases: dict[str, tuple[str, ...]]
    java: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def artifact(self) -> str:
        """What the connector itself is called, whichever Spark it is for."""
        return artifact_of(next(iter(self.releases.values()))[0])


@dataclass(frozen=True)
class Release:
    """A connector's jars for one Spark."""

    name: str
    coordinates: tuple[str, ...]

    @property
    def main(self) -> str:
        """The coordinate of the connector itself."""
        return self.coordinates[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all jars."""
        return tuple(file_name(coordinate) for coordinate in self.coordinates)

    @property
    def folder(self) -> str:
        """The name of the folder that the jars are kept in."""
        _, artifact, version = self.main.split(":")
        return f"{artifact}-{version}"


def _kafka(version: str) -> tuple[str, ...]:
    # The token provider is used for Hadoop's delegation tokens only; 4.0.0 is its newest release.
    return (
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    )


def _delta(spark: str) -> tuple[str, ...]:
    return (f"io.delta:delta-spark_{spark}_2.13:4.4.0", "io.delta:delta-storage:4.4.0")


def _s3(hadoop: str, sdk: str) -> tuple[str, ...]:
    return (f"org.apache.hadoop:hadoop-aws:{hadoop}", f"software.amazon.awssdk:bundle:{sdk}")


def _iceberg(spark: str, version: str) -> tuple[str, ...]:
    return (f"org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13:{version}",)


# The newest of each in November 2026, tried with that Spark. Of Spark's own modules there is none
# for 4.3, with which those for 4.2 and 4.1 work. Delta's and Iceberg's do not: Delta's for 4.2
# cannot read a table with 4.3 (NoSuchMethodError), nor can Iceberg's for 4.1 open a catalog with
# 4.2 or 4.3 (IncompatibleClassChangeError).
CONNECTORS = {
    "kafka": Connector(
        "kafka",
        "Kafka topics",
        {
            "4.0": _kafka("4.0.4"),
            "4.1": _kafka("4.1.3"),
            "4.2": _kafka("4.2.0"),
            "4.3": _kafka("4.2.0"),
        },
    ),
    "avro": Connector(
        "avro",
        "Avro messages",
        {
            "4.0": ("org.apache.spark:spark-avro_2.13:4.0.2",),
            **dict.fromkeys(("4.1", "4.2", "4.3"), ("org.apache.spark:spark-avro_2.13:4.1.1",)),
        },
        # A few bytes that are no Avro can ask for a text of 2 GB. Without limits the JVM would end
        # for want of memory; with them the message is one that cannot be read.
        java=(
            "-Dorg.apache.avro.limits.string.maxLength=67108864",
            "-Dorg.apache.avro.limits.bytes.maxLength=67108864",
            "-Dorg.apache.avro.limits.collectionItems.maxLength=8388608",
        ),
    ),
    "delta": Connector(
        "delta",
        "Delta tables",
        {spark: _delta(spark) for spark in ("4.0", "4.1", "4.2")},
        settings={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    # Of the Hadoop that each PySpark brings; Amazon's part alone has 600 MB.
    "s3": Connector(
        "s3",
        "tables and files at s3://",
        {
            "4.0": _s3("3.4.1", "2.24.6"),
            "4.1": _s3("3.4.2", "2.29.52"),
            "4.2": _s3("3.5.0", "2.35.4"),
            "4.3": _s3("3.5.0", "2.35.4"),
        },
        settings={"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"},
    ),
    "iceberg": Connector(
        "iceberg",
        "Iceberg tables",
        {"4.0": _iceberg("4.0", "1.11.0"), "4.1": _iceberg("4.1", "1.12.0")},
    ),
}


def file_name(coordinate: str) -> str:
    """The file of a Maven coordinate.

    >>> file_name("org.apache.kafka:kafka-clients:3.9.2")
    'kafka-clients-3.9.2.jar'
    """
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def artifact_of(coordinate: str) -> str:
    """What a coordinate is called without its version, its Scala and its Spark.

    >>> artifact_of("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0")
    'iceberg-spark-runtime'
    """
    return re.sub(r"-\d+\.\d+$", "", coordinate.split(":")[1].partition("_")[0])


def sparks_with(names: Sequence[str]) -> list[str]:
    """The Sparks that have all of these connectors.

    >>> sparks_with(["delta", "iceberg"])
    ['4.0', '4.1']
    """
    return [spark for spark in SPARKS if all(spark in CONNECTORS[n].releases for n in names)]


def releases_for(names: Sequence[str], spark: str) -> list[Release]:
    """The connectors of these names for a Spark, or one line on which Spark has them."""
    mine = f"{minor(spark)[0]}.{minor(spark)[1]}"
    lacking = [name for name in names if mine not in CONNECTORS[name].releases]
    if lacking:
        what = " and ".join(CONNECTORS[name].use for name in lacking)
        fitting = sparks_with(names)
        raise OptionError(
            f"{what}: no release of the connector fits Spark {spark}; those for Spark "
            f"{', '.join(fitting)} were tried: pip install 'pyspark=={fitting[-1]}.*', or name a "
            "release that fits under [spark] packages"
        )
    return [Release(name, CONNECTORS[name].releases[mine]) for name in names]


def cache_folder() -> Path:
    """Where fetched jars are kept: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "jars"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "thetajoin" / "jars"


def find_given_folder(folder: Path | None = None) -> Path | None:
    """The folder of jars that a user has named, in a job or by THETAJOIN_JARS."""
    named = os.environ.get(JARS)
    found = folder if folder is not None else Path(named) if named else None
    if found is not None and not found.is_dir():
        where = "[spark] jars" if folder is not None else JARS
        raise OptionError(f"{where} = {str(found)!r} is not a folder")
    return found


def is_kept(release: Release) -> bool:
    """Whether a connector's jars were fetched before."""
    folder = cache_folder() / release.folder
    return all((folder / name).is_file() for name in release.files)


def jar_settings(
    names: Sequence[str],
    spark: str,
    *,
    folder: Path | None = None,
    packages: Sequence[str] = (),
) -> dict[str, str]:
    """The settings of a session that has the connectors of these names.

    folder: has all jars, and nothing is fetched. packages: coordinates that Spark fetches itself;
    a connector that is among them is taken from there. Costs the start of a JVM and the time of
    the download, the first time.
    """
    settings = {"spark.jars.packages": ",".join(packages)} if packages else {}
    given = find_given_folder(folder)
    jars = [] if given is None else sorted(given.glob("*.jar"))
    java = [option for name in names for option in CONNECTORS[name].java]
    if java:
        settings[JAVA] = " ".join(java)
    for name in names:
        settings |= CONNECTORS[name].settings
    there = {artifact_of(coordinate) for coordinate in packages}

    def is_there(name: str) -> bool:
        artifact = CONNECTORS[name].artifact
        return artifact in there or any(jar.name.startswith(artifact) for jar in jars)

    for release in releases_for([name for name in names if not is_there(name)], spark):
        if given is not None:
            files = ", ".join(release.files)
            artifact = artifact_of(release.main)
            raise OptionError(f"{given} has no {artifact} jar: put these into it: {files}")
        if not is_kept(release):
            fetch(release.coordinates, cache_folder() / release.folder)
        jars += [cache_folder() / release.folder / name for name in release.files]
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    return settings


def fetch(coordinates: Sequence[str], folder: Path, *, transitive: bool = False) -> None:
    """Download jars into a folder, which takes its name once all of them are there."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="thetajoin-ivy-") as scratch:
            _run_ivy(coordinates, partial, Path(scratch), transitive=transitive)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_ivy(coordinates: Sequence[str], folder: Path, scratch: Path, *, transitive: bool) -> None:
    wanted = "".join(_dependency(text, transitive=transitive) for text in coordinates)
    module = scratch / "ivy.xml"
    module.write_text(f"{_HEAD}{_CONF}<dependencies>{wanted}</dependencies></ivy-module>")
    command = [str(find_java().program), "-jar", str(_find_ivy()), "-ivy", str(module)]
    command += ["-confs", "default", "-cache", str(scratch / "cache"), "-types", "jar", "bundle"]
    command += ["-retrieve", str(folder / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
    except subprocess.TimeoutExpired as error:
        told = f"cannot fetch {coordinates[0]}: no end after {_LONGEST_S} s"
        raise ThetaJoinError(told) from error
    missing = [line for line in done.stdout.splitlines() if "not found" in line]
    if done.returncode or missing or not any(folder.glob("*.jar")):
        said = (missing or (done.stdout + done.stderr).splitlines() or ["Ivy said nothing"])[-1]
        raise ThetaJoinError(
            f"cannot fetch {coordinates[0]}: {said.strip(': ')}; where there is no network, put "
            f"the jars into a folder and name it in {JARS}"
        )


def _dependency(coordinate: str, *, transitive: bool) -> str:
    group, artifact, version = map(quoteattr, coordinate.split(":"))
    conf = "default->default" if transitive else "default->master"
    deep = str(transitive).lower()
    return (
        f'<dependency org={group} name={artifact} rev={version} conf="{conf}" transitive="{deep}"/>'
    )


def _find_ivy() -> Path:
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found is not None and found.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not jars:
        raise OptionError("fetching jars needs PySpark: pip install 'thetajoin[spark]'")
    return jars[-1]
