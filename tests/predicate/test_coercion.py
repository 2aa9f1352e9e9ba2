"""Common types: the table of Spark's ANSI coercion, and what Arrow adds to it."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from thetajoin.predicate import compile_condition, evaluate
from thetajoin.predicate.signatures import MismatchError, arithmetic
from thetajoin.predicate.types import canonical_type, common_type, comparison_types, type_name

I8, I16, I32, I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
U8, U16, U32, U64 = pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()
F32, F64 = pa.float32(), pa.float64()
STR, BIN, BOOL, DATE = pa.large_string(), pa.large_binary(), pa.bool_(), pa.date32()
TS, NTZ, NS = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns")
DUR, TIME = pa.duration("us"), pa.time64("us")


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


TABLE = [
    # numbers widen
    (I8, I16, I16),
    (I32, I64, I64),
    (I8, F32, F64),
    (I64, F32, F64),
    (I64, F64, F64),
    (F32, F64, F64),
    # integers have 3, 5, 10, 20 digits beside a decimal
    (I8, dec(5, 2), dec(5, 2)),
    (I16, dec(5, 2), dec(7, 2)),
    (I32, dec(5, 2), dec(12, 2)),
    (I64, dec(5, 2), dec(22, 2)),
    (dec(10, 2), dec(12, 6), dec(14, 6)),
    (dec(38, 0), dec(38, 18), pa.decimal256(56, 18)),
    (dec(10, 2), F32, F64),
    (dec(10, 2), F64, F64),
    # strings become the other's type
    (STR, I8, I64),
    (STR, I64, I64),
    (STR, F32, F64),
    (STR, dec(5, 2), F64),
    (STR, DATE, DATE),
    (STR, TS, TS),
    (STR, NTZ, NTZ),
    (STR, BOOL, BOOL),
    (STR, BIN, BIN),
    (STR, DUR, None),
    # dates and times
    (DATE, TS, TS),
    (DATE, NTZ, NTZ),
    (TS, NTZ, TS),
    (pa.timestamp("us", "Europe/Berlin"), TS, TS),
    (TIME, pa.time32("s"), TIME),
    (pa.time32("s"), pa.time32("ms"), pa.time32("ms")),
    # unsigned integers widen exactly
    (U8, I8, I16),
    (U16, I8, I32),
    (U32, I8, I64),
    (U64, I8, dec(20, 0)),
    (U64, I64, dec(20, 0)),
    (U8, U64, U64),
    (U64, F64, F64),
    (U64, STR, dec(20, 0)),
    (U32, dec(5, 2), dec(12, 2)),
    # nothing in common
    (I32, DATE, None),
    (I32, TS, None),
    (I32, BOOL, None),
    (BOOL, F64, None),
    (BIN, I32, None),
    (DATE, BOOL, None),
    (DATE, TIME, None),
    (DUR, I64, None),
    (DUR, TS, None),
    (pa.null(), I32, I32),
    (pa.null(), DATE, DATE),
]


@pytest.mark.parametrize(("a", "b", "expected"), TABLE, ids=str)
def test_types_are_compared_as_spark_compares_them(a, b, expected):
    wanted = None if expected is None else (expected, expected)
    assert comparison_types(a, b) == wanted
    assert comparison_types(b, a) == wanted
    assert common_type(a, b) == common_type(b, a) == expected


def test_times_of_different_units_keep_them_in_a_comparison():
    assert comparison_types(TS, NS) == (TS, pa.timestamp("ns", "UTC"))
    assert comparison_types(pa.timestamp("s"), NS) == (pa.timestamp("s"), NS)
    assert comparison_types(DATE, NS) == (pa.timestamp("s"), NS)
    assert comparison_types(NS, DATE) == (NS, pa.timestamp("s"))
    assert comparison_types(pa.duration("s"), DUR) == (pa.duration("s"), DUR)
    assert common_type(pa.timestamp("s"), NS) == NS


def test_every_pair_of_types_compiles_or_is_refused():
    types = [*{type_ for row in TABLE for type_ in row if type_ is not None}]
    for a, b in itertools.product(types, types):
        if pa.types.is_null(a) or pa.types.is_null(b):
            continue
        left, right = pa.schema({"x": a}), pa.schema({"x": b})
        if comparison_types(a, b) is None:
            with pytest.raises(Exception, match="cannot compare"):
                compile_condition("l.x < r.x", left, right)
            continue
        (form,) = compile_condition("l.x < r.x", left, right).disjuncts
        (comparison,) = form.comparisons
        assert comparison.left.type == comparison.right.type == comparison.type


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("+", I8, I8, I8),
        ("+", I32, I64, I64),
        ("+", U8, U8, I16),
        ("-", U64, U64, dec(21, 0)),
        ("*", I32, F32, F64),
        ("+", F32, F32, F32),
        ("/", I32, I32, F64),
        ("/", F32, F32, F64),
        ("div", I8, I32, I64),
        ("%", I8, I32, I32),
        ("+", dec(10, 2), dec(5, 4), dec(13, 4)),
        ("-", dec(10, 2), dec(10, 2), dec(11, 2)),
        ("*", dec(10, 2), dec(5, 4), dec(16, 6)),
        ("/", dec(10, 2), dec(5, 4), dec(20, 8)),
        ("%", dec(10, 2), dec(5, 4), dec(5, 4)),
        ("*", dec(38, 10), dec(38, 10), dec(38, 6)),
        ("+", dec(38, 10), dec(38, 0), dec(38, 6)),
        ("+", dec(10, 2), I32, dec(13, 2)),
        ("+", dec(10, 2), F64, F64),
        ("+", STR, I32, I64),
        ("+", DATE, I32, DATE),
        ("-", DATE, I16, DATE),
        ("-", DATE, DATE, DUR),
        ("-", TS, TS, DUR),
        ("-", TS, DATE, DUR),
        ("-", NS, NTZ, pa.duration("ns")),
        ("+", NTZ, DUR, NTZ),
        ("+", DUR, NTZ, NTZ),
        ("+", pa.timestamp("s"), DUR, NTZ),
        ("+", NS, DUR, NS),
        ("+", DATE, DUR, TS),
        ("+", DUR, pa.duration("ns"), pa.duration("ns")),
        ("*", DUR, I32, DUR),
        ("&", I8, I32, I32),
        ("+", DATE, I64, None),
        ("+", DATE, DATE, None),
        ("-", I32, DATE, None),
        ("+", STR, STR, None),
        ("+", BOOL, BOOL, None),
        ("-", TIME, TIME, None),
        ("*", DUR, F64, None),
        ("/", DUR, I32, None),
        ("div", F64, F64, None),
        ("&", F64, I32, None),
    ],
    ids=str,
)
def test_arithmetic_gives_sparks_types(op, a, b, expected):
    from thetajoin.predicate.nodes import Column

    args = [Column(a, "l", "x"), Column(b, "l", "y")]
    if expected is None:
        with pytest.raises(MismatchError):
            arithmetic(op, args)
    else:
        assert arithmetic(op, args).type == expected


def test_an_integer_literal_has_only_its_own_digits_beside_a_decimal():
    schema = pa.schema({"n": dec(10, 2)})
    (form,) = compile_condition("l.n * 2 < r.n", schema, schema).disjuncts
    assert form.comparisons[0].left.sql(explicit=True) == "l.n * CAST(2 AS DECIMAL(1,0))"
    assert form.comparisons[0].type == dec(12, 2)


def test_columns_of_nothing_but_null_compare_to_null():
    schema = pa.schema({"n": pa.null()})
    (form,) = compile_condition("l.n = r.n", schema, schema).disjuncts
    (comparison,) = form.comparisons
    assert comparison.type == BOOL
    table = pa.table({"n": pa.nulls(2)})
    assert evaluate(comparison.left, left=table).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (pa.string(), STR),
        (pa.string_view(), STR),
        (pa.dictionary(I32, pa.string()), STR),
        (pa.dictionary(I8, I64), I64),
        (pa.binary(4), BIN),
        (pa.binary_view(), BIN),
        (pa.float16(), F32),
        (pa.date64(), DATE),
        (pa.decimal32(5, 2), dec(5, 2)),
        (pa.decimal64(15, 2), dec(15, 2)),
        (pa.run_end_encoded(I32, F64), F64),
        (pa.uuid(), BIN),
        (U64, U64),
    ],
    ids=str,
)
def test_columns_are_read_as_one_type_of_each_kind(stored, read):
    assert canonical_type(stored) == read


def test_types_have_sparks_names():
    names = [type_name(type_) for type_ in (I8, I64, STR, dec(5, 2), TS, NTZ, NS, U8, DUR, TIME)]
    assert names == [
        *("TINYINT", "BIGINT", "STRING", "DECIMAL(5,2)", "TIMESTAMP", "TIMESTAMP_NTZ"),
        *("timestamp[ns]", "uint8", "INTERVAL DAY TO SECOND", "TIME"),
    ]
