"""Files as tables: a path, a folder, a pattern or the URI of a remote filesystem."""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from thetajoin.batch.formats import (
    dataset_format,
    format_of,
    format_of_bytes,
    known_endings,
    read_open,
)
from thetajoin.batch.stores import store_failure
from thetajoin.errors import SchemaError, one_line
from thetajoin.secrets import hide_passwords

# What Spark and others leave beside the rows: markers, checksums, unfinished files.
_HIDDEN = (".", "_")
_DELTA_LOG = "_delta_log"


def is_path(value: Any) -> bool:
    """Whether a value names files rather than being a table itself."""
    return isinstance(value, str | os.PathLike)


def read_files(path: str | os.PathLike[str], what: str) -> pa.Table:
    """All rows of the files that a path names, in the order of their names.

    path: a file, a folder with everything below it, a pattern with ``*``, ``?``, ``[]`` or ``**``,
    or the URI of any of these on a filesystem that pyarrow knows (``s3://``, ``gs://``...), where
    ``?`` begins the filesystem's options. Folders named ``key=value`` below the folder, or from the
    pattern's first wildcard on, are columns. A column that only some files have is NULL in the
    others.

    what: the input's name in messages.
    """
    text = os.fsdecode(path)
    if not text:
        raise SchemaError(f"the {what} input is an empty text: give a table or the path of a file")
    return find_files(text, f"the {what} input {text!r}").read()


def find_files(text: str, name: str, form: str | None = None) -> Files:
    """The files that a path names, which are all of one format; no rows are read yet.

    name: what to call them in messages. form: their format, where their names are not to decide.
    """
    name = hide_passwords(name)
    with _in_one_line(name):
        return _found(text, name, form)


@contextmanager
def _in_one_line(name: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ImportError, ValueError) as error:
        # Which file it was, and what is wrong with it, comes behind that.
        told = re.sub(r"^Error creating dataset\..*? file\?: ", "", str(error))
        raise SchemaError(f"{name} cannot be read: {store_failure(told)}") from error


@dataclass(frozen=True)
class Files:
    """Files of one format, and the folder below which folders' names are columns."""

    name: str
    form: str
    filesystem: Any
    paths: list[str]
    base: str

    def read(self) -> pa.Table:
        """All rows, in the order of the files' names."""
        with _in_one_line(self.name):
            packed = next((path for path in self.paths if path.lower().endswith(".zst")), None)
            alone = self.base == str(PurePosixPath(self.paths[0]).parent) and len(self.paths) == 1
            if packed is not None and not alone:
                raise SchemaError(
                    f"{self.name}: {PurePosixPath(packed).name!r} is packed with zstd, and such a "
                    "file is read on its own only: give its path, or pack the files with gzip"
                )
            # Datasets unpack no zstd, and read no Arrow streams.
            if packed is not None:
                file = self.filesystem.open_input_stream(packed, compression="zstd")
            elif self.form == "arrow" and alone:
                file = self.filesystem.open_input_file(self.paths[0])
            else:
                return self._dataset().replace_schema_metadata(None)
            with file:
                return read_open(file, self.form).replace_schema_metadata(None)

    def _dataset(self) -> pa.Table:
        from pyarrow import dataset

        options = dataset.FileSystemFactoryOptions(
            partition_base_dir=self.base,
            partitioning=dataset.HivePartitioning.discover(infer_dictionary=False),
            exclude_invalid_files=False,
        )
        factory = dataset.FileSystemDatasetFactory(
            self.filesystem, self.paths, dataset_format(self.form), options
        )
        try:
            schema = factory.inspect(promote_options="permissive", fragments=None)
        except pa.ArrowTypeError as error:
            raise SchemaError(
                f"{self.name}: its files have columns of different types "
                f"({one_line(str(error))}): read them with the types they should have, and give "
                "that table"
            ) from error
        return factory.finish(schema).to_table()


def _found(text: str, name: str, form: str | None) -> Files:
    from pyarrow import fs

    if "://" in text:
        filesystem, pattern, places = _remote(text)
    else:
        filesystem, pattern = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))
        magic = glob.has_magic(pattern) and not os.path.exists(pattern)
        places = sorted(glob.glob(pattern, recursive=True)) if magic else [pattern]
        places = [place.replace(os.sep, "/") for place in places]
        pattern = pattern.replace(os.sep, "/") if magic else places[0]
    if places != [pattern]:
        places = _shown(places, pattern, name)
    paths: list[str] = []
    for info in filesystem.get_file_info(places):
        if info.type == fs.FileType.NotFound:
            raise SchemaError(f"{name}: there is no such file or folder{_meant(text)}")
        paths += _inside(filesystem, info.path, name) if not info.is_file else [info.path]
    if not paths:
        raise SchemaError(f"{name}: there are no files in that folder")
    folder = _before_wildcards(pattern) if places != [pattern] else pattern
    base = str(PurePosixPath(pattern).parent) if paths == [pattern] else folder
    return Files(name, form or _format(filesystem, paths, name), filesystem, paths, base)


def _meant(text: str) -> str:
    """Which file there is whose name is much like one that is not there."""
    folder, wanted = os.path.split(text)
    try:
        there = os.listdir(os.path.expanduser(folder) or ".")
    except (OSError, ValueError):
        return ""
    # Names that have little but their ending in common are not alike.
    stems = {os.path.splitext(name)[0]: name for name in there}
    alike = difflib.get_close_matches(os.path.splitext(wanted)[0], stems, 3, cutoff=0.6)
    near = difflib.get_close_matches(wanted, [stems[stem] for stem in alike], 1, cutoff=0.75)
    return f": did you mean {os.path.join(folder, near[0])!r}?" if near else ""


def _shown(places: list[str], pattern: str, name: str) -> list[str]:
    """The places that match a pattern, without those that are hidden unless it asks for them."""
    asked = PurePosixPath(pattern).name.startswith(_HIDDEN)
    names = [PurePosixPath(place).name for place in places]
    if _DELTA_LOG in names:
        raise _delta_table(name)
    shown = [p for p, n in zip(places, names, strict=True) if asked or not n.startswith(_HIDDEN)]
    if not shown:
        raise SchemaError(f"{name}: no file matches that pattern")
    return shown


def _delta_table(name: str) -> SchemaError:
    return SchemaError(
        f"{name} is a Delta table, some of whose files no longer count: read it with deltalake or "
        "Spark, and give that table"
    )


def _inside(filesystem: Any, folder: str, name: str) -> list[str]:
    """The files below a folder."""
    from pyarrow import fs

    paths = []
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        below = PurePosixPath(info.path).relative_to(folder).parts
        if _DELTA_LOG in below:
            raise _delta_table(name)
        if info.is_file and not any(part.startswith(_HIDDEN) for part in below):
            paths.append(info.path)
    return sorted(paths)


def _remote(text: str) -> tuple[Any, str, list[str]]:
    """A URI's filesystem, the path or pattern in it, and the places there that it names."""
    from pyarrow import fs

    address, mark, settings = text.partition("?")
    wildcard = re.search(r"[*\[]", address)
    if wildcard is None:
        filesystem, path = fs.FileSystem.from_uri(text)
        return filesystem, path, [path]
    cut = address.rindex("/", 0, wildcard.start()) + 1
    filesystem, folder = fs.FileSystem.from_uri(address[:cut] + mark + settings)
    folder = folder.rstrip("/")
    parts = address[cut:].rstrip("/").split("/")
    deep = len(parts) > 1
    selector = fs.FileSelector(folder, recursive=deep, allow_not_found=True)
    places = [
        info.path
        for info in filesystem.get_file_info(selector)
        if _matches(info.path[len(folder) :].strip("/").split("/"), parts)
    ]
    return filesystem, f"{folder}/{'/'.join(parts)}", sorted(places)


def _matches(names: list[str], pattern: list[str]) -> bool:
    """Whether a path's parts match a pattern's, of which ``**`` stands for any number.

    >>> _matches(["a", "b", "x.csv"], ["**", "*.csv"]), _matches(["a", "x.csv"], ["*.csv"])
    (True, False)
    """
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_matches(names[at:], pattern[1:]) for at in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _matches(names[1:], pattern[1:])


def _before_wildcards(pattern: str) -> str:
    """The folder in which a pattern's first wildcard stands.

    >>> _before_wildcards("/data/year=*/x.csv")
    '/data'
    """
    return str(PurePosixPath(re.split(r"[*?[]", pattern)[0] + "x").parent)


def _format(filesystem: Any, paths: list[str], name: str) -> str:
    """The format of files, which must be the same for all."""
    formats: dict[str, str] = {}
    for path in reversed(paths):
        form = format_of(path) or _by_first_bytes(filesystem, path)
        if form is None:
            raise SchemaError(
                f"{name}: the name of {PurePosixPath(path).name!r} does not say its format; known "
                f"are {known_endings()}"
            )
        formats[form] = path
    if len(formats) > 1:
        examples = " and ".join(sorted(repr(PurePosixPath(p).name) for p in formats.values()))
        raise SchemaError(
            f"{name} has files of different formats, such as {examples}: give a pattern that only "
            "those of one format match"
        )
    return next(iter(formats))


def _by_first_bytes(filesystem: Any, path: str) -> str | None:
    """The format of a file whose name has no ending."""
    if "." in PurePosixPath(path).name:
        return None
    with filesystem.open_input_file(path) as file:
        return format_of_bytes(file.read(16))
