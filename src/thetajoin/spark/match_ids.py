"""An id for each match, which stays the same when a micro-batch is run again.

Spark runs a micro-batch again after a failure, over the same input rows, and the join then gives
the same matches, in any order. A sink that already has some of them must recognise them: by an
id that depends on the match alone, not on its place among the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructType,
    TimestampType,
    VariantType,
)

from thetajoin.errors import OptionError, SchemaError, suggest
from thetajoin.predicate.render import backquote

_DIGITS = 32  # of an id: 128 bits
_CONTENT, _COUNT = "__thetajoin_content", "__thetajoin_count"


def match_ids(
    df: Any, name: str = "match_id", *, keys: Sequence[str] = (), batch: int | None = None
) -> Any:
    """The rows with an id for each, as 32 hexadecimal digits in a new first column.

    keys: columns that tell every match from all others, such as both sides' own ids. The id is a
    function of their values; this works on streams and on micro-batches.

    batch: without keys, the number of the micro-batch that `df` is (in `foreachBatch`). The id is
    then made from the number, all columns of the row, and a count among rows that are equal: two
    equal matches stay two. Costs a shuffle of the micro-batch's rows.

    ```
    pairs = match_ids(tj.join(...), keys=["id", "id_right"])
    ```
    """
    if name in df.columns:
        raise SchemaError(f"the id's name {name!r} is taken by a column: choose another")
    if isinstance(keys, str):
        keys = (keys,)
    for key in keys:
        if key not in df.columns:
            raise SchemaError(
                f"the match's key {key!r} is not a column: {suggest(key, df.columns)}"
            )
    if keys:
        return df.select(_digest(_texts(df, keys)).alias(name), "*")
    if df.isStreaming or batch is None:
        raise OptionError(
            "ids without keys count the equal rows of a micro-batch: call match_ids in "
            "foreachBatch with batch=NUMBER, or name keys=[...] that tell matches apart"
        )
    content = df.select(_digest(_texts(df, df.columns)).alias(_CONTENT), "*")
    # Equal rows are interchangeable, so it does not matter which of them gets which number.
    equal = Window.partitionBy(_CONTENT).orderBy(_CONTENT)
    counted = content.select(F.row_number().over(equal).alias(_COUNT), "*")
    parts = [F.lit(str(batch)), F.col(_CONTENT), F.col(_COUNT).cast("string")]
    columns = [F.col(backquote(column)) for column in df.columns]
    return counted.select(_digest(parts).alias(name), *columns)


def _digest(texts: Sequence[Any]) -> Any:
    """The first digits of the SHA-256 of several texts, each marked off from the next."""
    return F.substring(F.sha2(F.concat(*map(_mark_off, texts)), 256), 1, _DIGITS)


def _mark_off(text: Any) -> Any:
    """A text with its length before it, so that no two lists of texts run into the same one."""
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("-"))


def _texts(df: Any, names: Sequence[str]) -> list[Any]:
    return [_text(F.col(backquote(name)), df.schema[name].dataType) for name in names]


def _text(value: Any, kind: DataType) -> Any:
    """A value as text, different for different values, whatever the session's time zone."""
    if isinstance(kind, TimestampType):
        return F.unix_micros(value).cast("string")
    if isinstance(kind, BinaryType):
        return F.hex(value)
    if isinstance(kind, VariantType):
        return F.to_json(value)
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        parts = F.transform(value, lambda item: _mark_off(_text(item, inner)))
        return F.array_join(parts, "")
    if isinstance(kind, MapType):
        entries = F.map_entries(value)
        pair = StructType().add("key", kind.keyType).add("value", kind.valueType)
        parts = F.transform(entries, lambda item: _mark_off(_text(item, pair)))
        return F.array_join(F.array_sort(parts), "")
    if isinstance(kind, StructType):
        fields = [_mark_off(_text(value.getField(f.name), f.dataType)) for f in kind.fields]
        return F.when(value.isNotNull(), F.concat(F.lit(""), *fields))
    return value.cast("string")
