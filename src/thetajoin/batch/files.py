"""Files as tables: a path, a folder, a pattern or the URI of a remote filesystem."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from thetajoin.errors import SchemaError, one_line

# The format that the end of a file's name means, as pyarrow calls it.
FORMATS = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "ipc",
    "feather": "ipc",
    "ipc": "ipc",
    "orc": "orc",
}
# Endings behind those of text files, which pyarrow unpacks as it reads.
PACKED = ("gz", "bz2", "lz4")
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
    try:
        found = _found(text, what)
        return _read(found, text, what)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ImportError, ValueError) as error:
        raise SchemaError(f"the {what} input {text!r} cannot be read: {error}") from error


@dataclass(frozen=True)
class _Files:
    """Files of one format, and the folder below which folders' names are columns."""

    filesystem: Any
    names: list[str]
    base: str


def _found(text: str, what: str) -> _Files:
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
        places = _shown(places, pattern, text, what)
    names: list[str] = []
    for info in filesystem.get_file_info(places):
        if info.type == fs.FileType.NotFound:
            raise SchemaError(f"the {what} input {text!r}: there is no such file or folder")
        names += _inside(filesystem, info.path, text, what) if not info.is_file else [info.path]
    if not names:
        raise SchemaError(f"the {what} input {text!r}: there are no files in that folder")
    folder = _before_wildcards(pattern) if places != [pattern] else pattern
    single = names == [pattern]
    return _Files(filesystem, names, str(PurePosixPath(pattern).parent) if single else folder)


def _shown(places: list[str], pattern: str, text: str, what: str) -> list[str]:
    """The places that match a pattern, without those that are hidden unless it asks for them."""
    asked = PurePosixPath(pattern).name.startswith(_HIDDEN)
    names = [PurePosixPath(place).name for place in places]
    if _DELTA_LOG in names:
        raise _delta_table(text, what)
    shown = [p for p, n in zip(places, names, strict=True) if asked or not n.startswith(_HIDDEN)]
    if not shown:
        raise SchemaError(f"the {what} input {text!r}: no file matches that pattern")
    return shown


def _delta_table(text: str, what: str) -> SchemaError:
    return SchemaError(
        f"the {what} input {text!r} is a Delta table, some of whose files no longer count: read it "
        "with deltalake or Spark, and give that table"
    )


def _inside(filesystem: Any, folder: str, text: str, what: str) -> list[str]:
    """The files below a folder."""
    from pyarrow import fs

    names = []
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        below = PurePosixPath(info.path).relative_to(folder).parts
        if _DELTA_LOG in below:
            raise _delta_table(text, what)
        if info.is_file and not any(part.startswith(_HIDDEN) for part in below):
            names.append(info.path)
    return sorted(names)


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


def _read(files: _Files, text: str, what: str) -> pa.Table:
    from pyarrow import dataset

    options = dataset.FileSystemFactoryOptions(
        partition_base_dir=files.base,
        partitioning=dataset.HivePartitioning.discover(infer_dictionary=False),
        exclude_invalid_files=False,
    )
    format_ = _format(files.names, text, what)
    factory = dataset.FileSystemDatasetFactory(files.filesystem, files.names, format_, options)
    try:
        schema = factory.inspect(promote_options="permissive", fragments=None)
    except pa.ArrowTypeError as error:
        raise SchemaError(
            f"the {what} input {text!r}: its files have columns of different types "
            f"({one_line(str(error))}): read them with the types they should have, and give that "
            "table"
        ) from error
    return factory.finish(schema).to_table().replace_schema_metadata(None)


def _format(names: list[str], text: str, what: str) -> Any:
    """The format of files, which must be the same for all."""
    endings = {_ending(name): name for name in reversed(names)}
    for ending, name in endings.items():
        if ending not in FORMATS:
            known = ", ".join(f".{known}" for known in FORMATS)
            raise SchemaError(
                f"the {what} input {text!r}: the name of {PurePosixPath(name).name!r} does not say "
                f"its format; known are {known}"
            )
    formats = {FORMATS[ending]: name for ending, name in endings.items()}
    if len(formats) > 1 or len({ending == "tsv" for ending in endings}) > 1:
        examples = " and ".join(sorted(repr(PurePosixPath(n).name) for n in endings.values()))
        raise SchemaError(
            f"the {what} input {text!r} has files of different formats, such as {examples}: give a "
            "pattern that only those of one format match"
        )
    [form] = formats
    if form == "csv":
        return _csv("\t" if "tsv" in endings else ",")
    if form == "orc":
        from pyarrow.dataset import OrcFileFormat

        return OrcFileFormat()
    from pyarrow import dataset

    return {
        "parquet": dataset.ParquetFileFormat,
        "json": dataset.JsonFileFormat,
        "ipc": dataset.IpcFileFormat,
    }[form]()


def _ending(name: str) -> str:
    """The end of a file's name, in lower case, without what says how it was packed.

    >>> _ending("a/b.CSV.gz"), _ending("a/b")
    ('csv', '')
    """
    parts = PurePosixPath(name).name.lower().split(".")
    if len(parts) > 2 and parts[-1] in PACKED and FORMATS.get(parts[-2]) in ("csv", "json"):
        parts.pop()
    return parts[-1] if len(parts) > 1 else ""


def _csv(delimiter: str) -> Any:
    from pyarrow import csv, dataset

    # A quoted value may have line breaks: without this it would be a matter of luck.
    parse = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    return dataset.CsvFileFormat(parse_options=parse)
