"""Jars from Maven repositories: fetched once by the Ivy that comes with PySpark, kept in a folder.

Spark's own `spark.jars.packages` asks for all that a connector's description names, of the same
version, whether or not a repository has it. Here each jar is named, so what was tried is what runs.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from thetajoin.errors import OptionError, ThetaJoinError
from thetajoin.spark.session import find_java
from thetajoin.spark.versions import CONNECTORS, Release, artifact_of, releases_for

# A folder of jars to use instead of fetching any.
JARS = "THETAJOIN_JARS"
JAVA = "spark.driver.extraJavaOptions"
_LONGEST_S = 600
_HEAD = '<ivy-module version="2.0"><info organisation="thetajoin" module="jars"/>'
_CONF = '<configurations><conf name="default"/></configurations>'


def cache_folder() -> Path:
    """Where fetched jars are kept: in the virtual environment, else in the user's cache."""
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "jars"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "thetajoin" / "jars"


def given_folder(folder: Path | None = None) -> Path | None:
    """The folder of jars that a user has named, in a job or by THETAJOIN_JARS."""
    named = os.environ.get(JARS)
    found = folder if folder is not None else Path(named) if named else None
    if found is not None and not found.is_dir():
        where = "[spark] jars" if folder is not None else JARS
        raise OptionError(f"{where} = {str(found)!r} is not a folder")
    return found


def kept(release: Release) -> bool:
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
    given = given_folder(folder)
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
        jars += fetched(release)
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    return settings


def fetched(release: Release) -> list[Path]:
    """A connector's jars, downloaded where they are not at hand."""
    folder = cache_folder() / release.folder
    if not kept(release):
        fetch(release.coordinates, folder)
    return [folder / name for name in release.files]


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
    command = [str(find_java().program), "-jar", str(_ivy()), "-ivy", str(module)]
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


def _ivy() -> Path:
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found is not None and found.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not jars:
        raise OptionError("fetching jars needs PySpark: pip install 'thetajoin[spark]'")
    return jars[-1]
