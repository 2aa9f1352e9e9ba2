"""The output's columns: which there are, and how pairs and unmatched rows fill them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from thetajoin.engine.block import rows_without_columns
from thetajoin.engine.parts import Part, Side
from thetajoin.engine.rows import cast_back
from thetajoin.errors import OptionError, SchemaError, is_text
from thetajoin.kernels.order import gather
from thetajoin.predicate.categories import without_categories
from thetajoin.predicate.nodes import Column

How = Literal["inner", "left", "right", "full", "semi", "anti"]
# As Spark spells them.
HowName = Literal[
    "inner",
    "left",
    "leftouter",
    "left_outer",
    "right",
    "rightouter",
    "right_outer",
    "full",
    "outer",
    "fullouter",
    "full_outer",
    "semi",
    "leftsemi",
    "left_semi",
    "anti",
    "leftanti",
    "left_anti",
]
_SPELLINGS: dict[str, How] = {
    "inner": "inner",
    "left": "left",
    "leftouter": "left",
    "right": "right",
    "rightouter": "right",
    "full": "full",
    "outer": "full",
    "fullouter": "full",
    "semi": "semi",
    "leftsemi": "semi",
    "anti": "anti",
    "leftanti": "anti",
}
Positions = NDArray[np.int32]
# What an indicator says of a row: the places of these words, which are those of pandas.
LEFT_ONLY, RIGHT_ONLY, BOTH = range(3)
INDICATED = "left_only", "right_only", "both"
# From this many rows on, our own loop gathers them faster than Arrow does.
WORTH_ROWS = 1 << 14
_WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def parse_how(how: Any) -> How:
    """The kind of join, from any of Spark's spellings.

    >>> parse_how("left_outer")
    'left'
    """
    text = how if isinstance(how, str) else ""
    found = _SPELLINGS.get(text.lower().replace("_", ""))
    if found is None:
        raise OptionError(f"how={how!r} is not a join: use inner, left, right, full, semi or anti")
    return found


def preserves(how: How, side: Side) -> bool:
    """Whether rows of this side come out alone: unmatched, or once at their first match."""
    return how == "full" or how in (("left", "semi", "anti") if side == "l" else ("right",))


def check_suffix(suffix: Any) -> str:
    """The suffix, which must be text."""
    if not is_text(suffix):
        raise OptionError(
            f"suffix={suffix!r}: give the text to put behind a right column's name that is taken, "
            "such as '_right'"
        )
    return suffix


def check_indicator(indicator: Any, how: How, taken: Collection[str]) -> str:
    """The name of the column that says which sides a row comes from."""
    if not is_text(indicator) or not indicator:
        raise OptionError(
            f"indicator={indicator!r}: give the name of a column, such as '_merge', that will say "
            "which sides a row comes from"
        )
    if how in ("semi", "anti"):
        raise OptionError(f"indicator={indicator!r}: a row of a join with how={how!r} has one side")
    if indicator in taken:
        raise OptionError(f"indicator={indicator!r}: the output has a column of that name already")
    return indicator


class Layout:
    """Output columns of a join of two schemas."""

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        how: How,
        suffix: str,
        indicator: str | None = None,
    ) -> None:
        t = pa.types
        check_suffix(suffix)
        self.how = how
        self.only_left = how in ("semi", "anti")
        left, right = (pa.schema(map(without_categories, schema)) for schema in (left, right))
        fields = [field.with_nullable(True) for field in left]
        taken = set(left.names)
        for field in [] if self.only_left else right:
            name = field.name
            if name in taken:
                name += suffix
            if name in taken:
                raise SchemaError(
                    f"output column {name!r} is taken on both sides: choose another suffix "
                    f"than {suffix!r}"
                )
            taken.add(name)
            fields.append(field.with_name(name).with_nullable(True))
        self._indicated: pa.Array | None = None
        if indicator is not None:
            self._indicated = pa.array(INDICATED)
            type_ = pa.dictionary(pa.int8(), pa.string())
            fields.append(pa.field(check_indicator(indicator, how, taken), type_))
        self.schema = pa.schema(fields)
        # Rows may be kept in other types than they came in (see `rows.storage_schema`).
        self._as_given = any(
            t.is_string_view(f.type) or t.is_binary_view(f.type) or t.is_run_end_encoded(f.type)
            for f in fields
        )
        self._types: dict[Side, list[pa.DataType]] = {"l": left.types, "r": right.types}
        # Right columns, by number, that have what a left column has wherever rows match.
        self.alike: dict[int, int] = {}

    def with_alike(self, parts: tuple[Part, ...], left: pa.Schema, right: pa.Schema) -> Layout:
        """The same layout for matches of a condition with these parts, of rows kept in two schemas.

        A right column that must be equal to a left one is not gathered a second time.
        """
        pairs = [_equal_columns(part, left, right) for part in parts]
        common = set.intersection(*pairs) if pairs else set()
        layout = copy(self)
        layout.alike = {
            right.get_field_index(theirs): left.get_field_index(ours)
            for ours, theirs in sorted(common)
        }
        return layout

    def pairs(
        self,
        left: pa.RecordBatch,
        left_rows: Positions,
        right: pa.RecordBatch,
        right_rows: Positions,
    ) -> pa.RecordBatch:
        """Matched rows side by side."""
        columns = take_columns(left, left_rows)
        alike = {theirs: columns[ours] for theirs, ours in self.alike.items()}
        columns = columns + take_columns(right, right_rows, alike=alike)
        return self._batch(columns, len(left_rows), BOTH)

    def match_rows(
        self,
        left: pa.RecordBatch,
        left_rows: Positions | None,
        right: pa.RecordBatch,
        right_rows: Positions,
    ) -> pa.RecordBatch:
        """Left rows (None: all as they are) with a right row each, or NULLs where it is -1."""
        columns = left.columns if left_rows is None else take_columns(left, left_rows)
        if right.num_rows == 0:
            right_columns = [pa.nulls(len(right_rows), t) for t in self._types["r"]]
        else:
            alike = {theirs: columns[ours] for theirs, ours in self.alike.items()}
            right_columns = take_columns(right, right_rows, or_null=True, alike=alike)
        sides: int | NDArray[Any] = BOTH
        if self._indicated is not None:
            sides = np.where(right_rows < 0, LEFT_ONLY, BOTH)
        return self._batch(columns + right_columns, len(right_rows), sides)

    def single(self, side: Side, table: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
        """Rows of one side alone, the other side's columns NULL (or not there)."""
        columns = take_columns(table, rows)
        if not self.only_left:
            other = [pa.nulls(len(rows), t) for t in self._types["r" if side == "l" else "l"]]
            columns = columns + other if side == "l" else other + columns
        return self._batch(columns, len(rows), LEFT_ONLY if side == "l" else RIGHT_ONLY)

    def _batch(
        self, columns: list[pa.Array], rows: int, sides: int | NDArray[Any]
    ) -> pa.RecordBatch:
        if self._indicated is not None:
            places = np.empty(rows, np.int8)
            places[:] = sides
            columns = [*columns, pa.DictionaryArray.from_arrays(places, self._indicated)]
        if not columns:
            return rows_without_columns(rows)
        if self._as_given:
            columns = [cast_back(c, f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """Batches of this layout as one table."""
        return pa.Table.from_batches(batches, schema=self.schema)


def _equal_columns(part: Part, left: pa.Schema, right: pa.Schema) -> set[tuple[str, str]]:
    """Columns that a part makes equal, of a type whose equal values are identical.

    Of doubles they are not: 0.0 is equal to -0.0.
    """
    found = set()
    view = part.views["r"]
    for dim, stored, asks in zip(view.shape.dims, view.stored, view.asks, strict=True):
        ours, theirs = part.keys["l"][asks[0].probe_key].expr, part.keys["r"][stored].expr
        if not dim.equal or not isinstance(ours, Column) or not isinstance(theirs, Column):
            continue
        type_ = left.field(ours.name).type
        if ours.path or theirs.path or type_ != right.field(theirs.name).type:
            continue
        if _width(type_) is not None or _is_text(type_):
            found.add((ours.name, theirs.name))
    return found


def take_columns(
    table: pa.RecordBatch,
    rows: Positions,
    *,
    or_null: bool = False,
    alike: Mapping[int, pa.Array] | None = None,
) -> list[pa.Array]:
    """The rows of every column; row numbers are known to be in range.

    With `or_null` a row number of -1 stands for NULL. `alike` has columns that are known already,
    except for these NULLs.
    """
    missing = rows < 0 if or_null else None
    if missing is not None and not missing.any():
        missing = None
    indices = validity = None
    taken = []
    for number, column in enumerate(table.columns):
        known = None if alike is None else alike.get(number)
        if known is not None and missing is None:
            taken.append(known)
            continue
        values = _plain(column) if rows.size >= WORTH_ROWS else None
        if known is None and values is None:
            if indices is None:
                indices = pa.array(rows, mask=missing)
            taken.append(column.take(indices))
            continue
        if missing is not None and validity is None:
            validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
            rows = np.maximum(rows, 0)
        if known is not None:
            taken.append(_with_validity(known, validity))
            continue
        out = pa.py_buffer(gather(values, rows))
        taken.append(pa.Array.from_buffers(column.type, rows.size, [validity, out]))
    return taken


def _width(type_: pa.DataType) -> int | None:
    """Bytes of a value of a type whose equal values have the same bytes; None of other types.

    A date of 64 bits is compared by its day.
    """
    t = pa.types
    exact = t.is_integer(type_) or t.is_decimal(type_)
    if exact or (t.is_temporal(type_) and t.is_primitive(type_) and not t.is_date64(type_)):
        return int(type_.bit_width) // 8
    return None


def _is_text(type_: pa.DataType) -> bool:
    t = pa.types
    text = t.is_string(type_) or t.is_large_string(type_)
    return bool(text or t.is_binary(type_) or t.is_large_binary(type_))


def _with_validity(column: pa.Array, validity: pa.Buffer) -> pa.Array:
    """A column with other NULLs, its values not copied."""
    width = _width(column.type)
    if width is None:
        width = 8 if column.type in (pa.large_string(), pa.large_binary()) else 4
    _, first, *rest = column.buffers()
    buffers = [validity, first.slice(column.offset * width), *rest]
    return pa.Array.from_buffers(column.type, len(column), buffers)


def _plain(column: pa.Array) -> NDArray[Any] | None:
    """A column's values as integers of its width; None if it has NULLs or no fixed width."""
    if not pa.types.is_primitive(column.type) or column.null_count:
        return None
    dtype = _WIDTHS.get(column.type.bit_width)
    buffer = column.buffers()[1]
    if dtype is None or buffer is None:
        return None
    end = column.offset + len(column)
    return np.frombuffer(buffer, dtype, count=end)[column.offset :]
