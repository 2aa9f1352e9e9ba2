"""Files as tables: a path, a folder, a pattern or the URI of a remote filesystem."""

from __future__ import annotations

import difflib
import glob
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from thetajoin.edge import public
from thetajoin.errors import OptionError, SchemaError, ThetaJoinError, one_line
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


@public("read fewer files at a time")
def csv(
    path: str | os.PathLike[str],
    *,
    header: bool = True,
    names: Sequence[str] | None = None,
    delimiter: str | None = None,
    skip_rows: int = 0,
    types: Mapping[str, Any] | None = None,
    null_values: Sequence[str] | None = None,
) -> pa.Table:
    """A CSV file, or several, as a table: for those that a path alone would not read right.

    Costs reading the files; the table can be the input of every call.

    Args:
        path: a file, a folder or a pattern, as in the other calls; the names may end in anything.
        header: whether the first line has the columns' names; else they are f0, f1, ...
        names: the columns' names, in place of those in the file.
        delimiter: what stands between values: a comma, or a tab in ``.tsv``.
        skip_rows: lines to pass over before the header.
        types: types of columns by name, such as ``{"zip": pa.string()}``; the others are guessed.
        null_values: what stands for NULL, in place of an empty value, ``NA``, ``null`` and so on.

    >>> import thetajoin as tj, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "bands.txt")
    >>> _ = file.write_text("1;a\\n5;b\\n")
    >>> tj.csv(file, header=False, names=["low", "name"], delimiter=";").to_pydict()
    {'low': [1, 5], 'name': ['a', 'b']}
    """
    from pyarrow import csv

    if delimiter is not None and len(delimiter) != 1:
        raise OptionError(f"delimiter={delimiter!r}: give one character, such as ';'")
    text = os.fsdecode(path)
    form = "tsv" if format_of(text) == "tsv" else "csv"
    found = find_files(text, repr(text), form)
    nulls = {} if null_values is None else {"null_values": [*null_values]}
    options = {
        "read_options": csv.ReadOptions(
            # Names in place of the file's: its header is one more line to pass over.
            skip_rows=skip_rows + (header and names is not None),
            column_names=None if names is None else [*names],
            autogenerate_column_names=not header and names is None,
        ),
        "parse_options": _csv_options(form, delimiter),
        "convert_options": csv.ConvertOptions(
            column_types=dict(types or {}), strings_can_be_null=bool(nulls), **nulls
        ),
    }
    tables = []
    with _explain_failure(found.name):
        for file in found.paths:
            with found.filesystem.open_input_stream(file) as stream:
                tables.append(csv.read_csv(stream, **options))
        return pa.concat_tables(tables, promote_options="permissive")


def find_files(text: str, name: str, form: str | None = None) -> Files:
    """The files that a path names, which are all of one format; no rows are read yet.

    name: what to call them in messages. form: their format, where their names are not to decide.
    """
    name = hide_passwords(name)
    with _explain_failure(name):
        return _find(text, name, form)


@contextmanager
def _explain_failure(name: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ImportError, ValueError) as error:
        # What follows says which file it was and what is wrong with it.
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
        with _explain_failure(self.name):
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


def _find(text: str, name: str, form: str | None) -> Files:
    from pyarrow import fs

    if "://" in text:
        filesystem, pattern, places = _list_remote(text)
    else:
        filesystem, pattern = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(text))
        magic = glob.has_magic(pattern) and not os.path.exists(pattern)
        places = sorted(glob.glob(pattern, recursive=True)) if magic else [pattern]
        places = [place.replace(os.sep, "/") for place in places]
        pattern = pattern.replace(os.sep, "/") if magic else places[0]
    if places != [pattern]:
        places = _drop_hidden(places, pattern, name)
    paths: list[str] = []
    for info in filesystem.get_file_info(places):
        if info.type == fs.FileType.NotFound:
            raise SchemaError(f"{name}: there is no such file or folder{_suggest_name(text)}")
        paths += _list_folder(filesystem, info.path, name) if not info.is_file else [info.path]
    if not paths:
        raise SchemaError(f"{name}: there are no files in that folder")
    folder = _before_wildcards(pattern) if places != [pattern] else pattern
    base = str(PurePosixPath(pattern).parent) if paths == [pattern] else folder
    return Files(name, form or _find_format(filesystem, paths, name), filesystem, paths, base)


def _suggest_name(text: str) -> str:
    """A hint with the existing file whose name is most like the given one."""
    folder, wanted = os.path.split(text)
    try:
        there = os.listdir(os.path.expanduser(folder) or ".")
    except (OSError, ValueError):
        return ""
    # The ending alone makes no likeness.
    stems = {os.path.splitext(name)[0]: name for name in there}
    alike = difflib.get_close_matches(os.path.splitext(wanted)[0], stems, 3, cutoff=0.6)
    near = difflib.get_close_matches(wanted, [stems[stem] for stem in alike], 1, cutoff=0.75)
    return f": did you mean {os.path.join(folder, near[0])!r}?" if near else ""


def _drop_hidden(places: list[str], pattern: str, name: str) -> list[str]:
    """The places that match a pattern, without hidden ones unless the pattern asks for them."""
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


def _list_folder(filesystem: Any, folder: str, name: str) -> list[str]:
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


def _list_remote(text: str) -> tuple[Any, str, list[str]]:
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


def _find_format(filesystem: Any, paths: list[str], name: str) -> str:
    """The format of files, which must be the same for all."""
    formats: dict[str, str] = {}
    for path in reversed(paths):
        form = format_of(path) or _sniff_format(filesystem, path)
        if form is None:
            raise SchemaError(
                f"{name}: the name of {PurePosixPath(path).name!r} does not say its format; known "
                f"are {list_endings()}"
            )
        formats[form] = path
    if len(formats) > 1:
        examples = " and ".join(sorted(repr(PurePosixPath(p).name) for p in formats.values()))
        raise SchemaError(
            f"{name} has files of different formats, such as {examples}: give a pattern that only "
            "those of one format match"
        )
    return next(iter(formats))


def _sniff_format(filesystem: Any, path: str) -> str | None:
    """The format of a file whose name has no ending."""
    if "." in PurePosixPath(path).name:
        return None
    with filesystem.open_input_file(path) as file:
        return format_of_bytes(file.read(16))


ENDINGS = {
    "parquet": ("parquet", "pq"),
    "csv": ("csv",),
    "tsv": ("tsv",),
    "json": ("json", "jsonl", "ndjson"),
    "arrow": ("arrow", "feather", "ipc"),
    "orc": ("orc",),
}
FORMATS = tuple(ENDINGS)
_FORMAT_OF = {ending: form for form, endings in ENDINGS.items() for ending in endings}
_TEXTS = ("csv", "tsv", "json")
# Endings after those of text formats: such files are unpacked as they are read.
_PACKED = ("gz", "bz2", "lz4", "zst")
_STREAM = b"\xff\xff\xff\xff"
# An Arrow stream, unlike a file, begins with a marker of its own.
_BEGINNINGS = {b"PAR1": "parquet", b"ARROW1": "arrow", _STREAM: "arrow", b"ORC": "orc"}


def format_of(name: str) -> str | None:
    """The format that the end of a file's name means; None if it means none.

    >>> format_of("a/b.CSV.gz"), format_of("a.feather"), format_of("a.parquet.gz"), format_of("a")
    ('csv', 'arrow', None, None)
    """
    parts = PurePosixPath(name).name.lower().split(".")
    packed = len(parts) > 2 and parts[-1] in _PACKED
    form = _FORMAT_OF.get(parts[-2 if packed else -1]) if len(parts) > 1 else None
    return None if packed and form not in _TEXTS else form


def list_endings(*forms: str) -> str:
    """The endings of formats, or of all, for a message.

    >>> list_endings("parquet", "csv")
    '.parquet, .pq, .csv'
    """
    return ", ".join(f".{ending}" for form in forms or FORMATS for ending in ENDINGS[form])


def format_of_bytes(content: bytes) -> str | None:
    """The format that begins with these bytes; None for text, which could be any."""
    return next((form for start, form in _BEGINNINGS.items() if content.startswith(start)), None)


def dataset_format(form: str) -> Any:
    """A format as pyarrow's datasets take it."""
    from pyarrow import dataset

    if form == "orc":  # which not every build of pyarrow has
        return dataset.OrcFileFormat()
    if form in ("csv", "tsv"):
        return dataset.CsvFileFormat(parse_options=_csv_options(form))
    return {
        "parquet": dataset.ParquetFileFormat,
        "json": dataset.JsonFileFormat,
        "arrow": dataset.IpcFileFormat,
    }[form]()


def read_open(file: pa.NativeFile, form: str) -> pa.Table:
    """The table in an open file, or in bytes."""
    if form in ("csv", "tsv"):
        from pyarrow import csv

        return csv.read_csv(file, parse_options=_csv_options(form))
    if form == "json":
        from pyarrow import json

        return json.read_json(file)
    if form == "arrow":
        streamed = file.read(len(_STREAM)) == _STREAM
        file.seek(0)
        return (pa.ipc.open_stream if streamed else pa.ipc.open_file)(file).read_all()
    if form == "orc":
        from pyarrow import orc

        return orc.read_table(file)
    from pyarrow import parquet

    return parquet.read_table(file)


def _csv_options(form: str, delimiter: str | None = None) -> Any:
    from pyarrow import csv

    usual = "\t" if form == "tsv" else ","
    # A quoted value may have line breaks; without this they are read only by luck.
    return csv.ParseOptions(delimiter=delimiter or usual, newlines_in_values=True)


PACKAGES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def read_lake(kind: str, place: str, options: Mapping[str, str]) -> pa.Table:
    """A table's rows as they are now."""
    if importlib.util.find_spec(PACKAGES[kind]) is None:
        raise OptionError(
            f"{kind.title()} tables without a stream need {PACKAGES[kind]}: "
            f"pip install 'thetajoin[{kind}]'"
        )
    try:
        return _read_delta(place, options) if kind == "delta" else _read_iceberg(place, options)
    except Exception as error:  # each package has a tree of errors of its own
        why = store_failure(str(error)) or type(error).__name__
        raise ThetaJoinError(f"cannot read the {kind.title()} table {place}: {why}") from error


def _read_delta(place: str, options: Mapping[str, str]) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(place, storage_options=dict(options) or None).to_pyarrow_table()


def _read_iceberg(place: str, options: Mapping[str, str]) -> pa.Table:
    from pyiceberg.catalog import load_catalog

    catalog, _, table = place.partition(".")
    return load_catalog(catalog, **options).load_table(table).scan().to_arrow()


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ANSWER = re.compile(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", re.DOTALL)
_ADDRESS = re.compile(r"(https?://)(?:[^/@\s]*@)?([^/?#\s]+)")
# Catalogs refuse people too; this is for stores.
_STORE = re.compile(r"S3 error|AWS Error|AmazonS3|Bucket '.*' not found")
_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ADVICE = (
    ("NoSuchBucket|Bucket '.*' not found", "there is no such bucket: check its name"),
    # Without credentials, clients ask the machine they run on.
    ("/latest/api/token|/latest/meta-data", f"there are no credentials: set {_KEYS}"),
    (
        "InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|ACCESS_DENIED|ExpiredToken|"
        "InvalidToken|403 Forbidden|401 Unauthorized",
        f"the store refuses the credentials: check {_KEYS}, and what they may do",
    ),
    (
        "URL scheme is not allowed|BadScheme",
        "the address is not https: set AWS_ALLOW_HTTP=true if that is meant",
    ),
    (
        "tcp connect error|dns error|client error|operation timed out|NETWORK_CONNECTION",
        "no store answers{at}: check AWS_ENDPOINT_URL, and the network",
    ),
)


def store_failure(said: str) -> str:
    """An error's text in one line; of an object store's, what to do and the end of what it said.

    The rest is left out: stores give back what they were asked, with the access key's id.

    >>> store_failure("Generic S3 error: GET http://h:9/b?x in 2s: 404 <Code>NoSuchBucket</Code>")
    'there is no such bucket: check its name (NoSuchBucket)'
    >>> store_failure("Generic S3 error: GET http://h:9/b in 2s ↳ tcp connect error ↳ refused")
    'no store answers at http://h:9: check AWS_ENDPOINT_URL, and the network (refused)'
    >>> store_failure("no table here")
    'no table here'
    """
    plain = one_line(_COLOUR.sub("", said))
    if not _STORE.search(plain):
        return plain
    answer = _ANSWER.search(plain)
    last = plain.rpartition("↳")[2].strip()
    told = ": ".join(part for part in answer.groups() if part) if answer else last
    address = _ADDRESS.search(plain)
    at = f" at {address[1]}{address[2]}" if address else ""
    for pattern, advice in _ADVICE:
        if re.search(pattern, plain):
            return f"{advice.format(at=at)} ({told})"
    return told
