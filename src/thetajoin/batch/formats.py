"""The formats of tables in files: by which names and first bytes they are known, and read."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

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
# Endings behind those of texts, which are unpacked as they are read.
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


def known_endings(*forms: str) -> str:
    """The endings of formats, or of all, for a message.

    >>> known_endings("parquet", "csv")
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
        return dataset.CsvFileFormat(parse_options=_separated(form))
    return {
        "parquet": dataset.ParquetFileFormat,
        "json": dataset.JsonFileFormat,
        "arrow": dataset.IpcFileFormat,
    }[form]()


def read_open(file: pa.NativeFile, form: str) -> pa.Table:
    """The table in an open file, or in bytes."""
    if form in ("csv", "tsv"):
        from pyarrow import csv

        return csv.read_csv(file, parse_options=_separated(form))
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


def _separated(form: str) -> Any:
    from pyarrow import csv

    # A quoted value may have line breaks: without this it would be a matter of luck.
    return csv.ParseOptions(delimiter="\t" if form == "tsv" else ",", newlines_in_values=True)
