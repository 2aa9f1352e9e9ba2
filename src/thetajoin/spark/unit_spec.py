"""A streaming join as a value that travels to Spark's Python workers, and what its units keep.

Of its rows a unit keeps blobs in the state store, and entries that say what is in them.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from thetajoin.engine.block import Block
from thetajoin.engine.compiled import CompiledJoin, compile_join
from thetajoin.engine.parts import Side
from thetajoin.engine.rows import storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share
from thetajoin.engine.store import count_fitting
from thetajoin.errors import OptionError, SnapshotError, ThetaJoinError
from thetajoin.index.probe import Arrivals
from thetajoin.ipc import batch_from_ipc, schema_from_bytes, schema_to_bytes, to_ipc
from thetajoin.limits import limits
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.planner.routing import BROADCAST, Routing
from thetajoin.predicate import compile_condition, condition_text
from thetajoin.predicate.render import canonical_text
from thetajoin.spark.tasks import Remembered
from thetajoin.window.windows import FullHistory, window_from_dict

if TYPE_CHECKING:
    from thetajoin.aggregate.spec import AggSpec

ARRIVALS = b"thetajoin.arrivals"
# Changes when state written by an older version can no longer be read.
STATE_FORMAT = 1
DESCRIBED = ("identity", "token", "entries", "counts", "watermark", "counters", "timer")


class BlobInfo(NamedTuple):
    """What is seen of a blob of rows; `rows` is None if it cannot be read."""

    size: int
    check: int
    rows: int | None
    columns: bool

    @staticmethod
    def of(blob: bytes) -> BlobInfo:
        """Look at a blob; costs a pass over its bytes."""
        try:
            found = batch_from_ipc(blob)
        except (pa.ArrowInvalid, OSError, StopIteration):
            return BlobInfo(len(blob), zlib.crc32(blob), None, False)
        return BlobInfo(len(blob), zlib.crc32(blob), found.num_rows, bool(found.num_columns))


class Entry(NamedTuple):
    """Rows in the state store: one side's share of a micro-batch, or a part of it."""

    side: Side
    first: int
    rows: int
    newest: int | None
    size: int
    # The last row's arrival number, where others of the micro-batch are in other units.
    last: int | None = None
    # The blob's checksum; entries of older versions have none.
    check: int | None = None

    @property
    def end(self) -> int:
        """The last row's arrival number."""
        return self.first + self.rows - 1 if self.last is None else self.last

    @property
    def key(self) -> tuple[str]:
        """The key of their blob."""
        return (f"{self.side}{self.first}",)

    def fault(self, look: BlobInfo | None) -> str:
        """What is wrong with the blob that should hold these rows; nothing if it is sound."""
        name = self.key[0]
        if look is None:
            return f"the rows {name!r} are listed and are not there"
        if look.size != self.size:
            return f"the rows {name!r} take {look.size} bytes and should take {self.size}"
        if self.check is not None and look.check != self.check:
            return f"the checksum of the rows {name!r} is wrong"
        if look.rows is None:
            return f"the rows {name!r} cannot be read"
        if look.columns and look.rows != self.rows:
            return f"the rows {name!r} are {look.rows} and should be {self.rows}"
        return ""


@cache
def versions() -> dict[str, str]:
    """Which thetajoin and which Spark write a state."""
    import pyspark

    from thetajoin import __version__

    return {"thetajoin": __version__, "spark": pyspark.__version__}


def damage_error(unit: int, what: str) -> SnapshotError:
    """The error for state that no join can continue."""
    return SnapshotError(
        f"thetajoin: the checkpoint is damaged: in unit {unit}, {what}; go on with a copy of the "
        "checkpoint from before, or start with a new checkpointLocation"
    )


def read_description(text: str, unit: int) -> dict[str, Any]:
    """A unit's description; refuses one that is damaged or of a newer version."""
    try:
        described = json.loads(text)
        newer = described["identity"]["format"]
        complete = all(name in described for name in DESCRIBED)
    except (ValueError, LookupError, TypeError) as error:
        raise damage_error(
            unit, f"the description of what it holds cannot be read ({error})"
        ) from error
    if isinstance(newer, int) and newer > STATE_FORMAT:
        by = described.get("written_by", {}).get("thetajoin", "a newer version")
        raise SnapshotError(
            f"thetajoin: the checkpoint has format {newer}, written by thetajoin {by}, and this "
            f"thetajoin reads up to {STATE_FORMAT}: update it, or go on with the newer version"
        )
    if not complete:
        raise damage_error(unit, "the description of what it holds is not complete")
    return described  # type: ignore[no-any-return]


def entries_of(block: Block, side: Side) -> Iterator[tuple[Entry, bytes]]:
    """A block's rows as blobs of bounded size, each with its entry."""
    table, numbers = block.table, block.arrivals
    most = count_fitting(limits.blob_bytes, block.rows, int(table.nbytes))
    for start in range(0, block.rows, most):
        rows = min(most, block.rows - start)
        times = None if block.times is None else block.times[start : start + rows]
        newest = None if times is None else int(times.max())
        yield entry_of(side, table.slice(start, rows), numbers.slice(start, rows), newest)


def entry_of(
    side: Side, table: pa.RecordBatch, numbers: Arrivals, newest: int | None
) -> tuple[Entry, bytes]:
    """Rows as one blob, and its entry."""
    blob = pack_rows(table, numbers)
    ends = numbers.first, table.num_rows, newest, len(blob), numbers.last
    return Entry(side, *ends, zlib.crc32(blob)), blob


def pack_rows(table: pa.RecordBatch, numbers: Arrivals) -> bytes:
    """Rows and their arrival numbers as bytes."""
    if not numbers.is_dense:
        table = table.replace_schema_metadata({ARRIVALS: numbers.bits()})
    blob: bytes = to_ipc(table).to_pybytes()
    return blob


def rows_from(blob: bytes, first: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Arrivals]:
    """What `pack_rows` was given, with the first row's arrival number and the side's schema."""
    table = batch_from_ipc(blob)
    bits = (table.schema.metadata or {}).get(ARRIVALS)
    dense = Arrivals.dense(first, table.num_rows)
    if table.num_columns:
        kept = pa.schema([schema.field(name) for name in table.schema.names])
        table = pa.RecordBatch.from_arrays(table.columns, schema=kept)
    return table, dense if bits is None else Arrivals.from_bits(first, bits)


_COMPILED: Remembered[CompiledJoin] = Remembered(8)
_AGGREGATES: Remembered[AggSpec] = Remembered(8)


def _columns(schema: pa.Schema) -> str:
    """A schema as text, without which columns can be NULL, since that changes nothing."""
    return str(pa.schema([field.with_nullable(True) for field in schema]))


def _plain(value: Any) -> Any:
    """A value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def _read_saved(identity: dict[str, Any], what: str) -> Any:
    """What a saved identity says; one without a routing is from before there were others."""
    return identity.get(what, "broadcast") if what == "routing" else identity.get(what)


@dataclass(frozen=True)
class UnitSpec:
    """Everything a unit needs to know; its condition is text, so that it can be sent.

    lags: how far behind the watermark, in microseconds, rows of each side may be without being
    late: those of another join carry the time of their older half. repeated: output columns that
    units leave out, each with the one that holds the same in every row. accepts: identities of
    joins whose state this one can continue (`jobs.checkpoint`). late: the folder for late rows.
    """

    join: JoinSpec
    left_schema: bytes
    right_schema: bytes
    label: str
    units: int = 1
    routing: Routing = BROADCAST
    lags: tuple[int, int] = (0, 0)
    repeated: tuple[tuple[int, int], ...] = ()
    accepts: tuple[dict[str, Any], ...] = ()
    late: str | None = None

    @classmethod
    def of(cls, join: JoinSpec, left: pa.Schema, right: pa.Schema, /, **more: Any) -> UnitSpec:
        """A checked join of two schemas."""
        on = None if join.on is None else condition_text(join.on)
        return cls(
            replace(join, on=on),
            schema_to_bytes(left),
            schema_to_bytes(right),
            label=uuid.uuid4().hex[:12],
            **more,
        )

    @property
    def keeps_left(self) -> bool:
        """Whether totals also have the groups of left rows without a match."""
        return self.join.aggs is not None and self.join.how == "left"

    @cached_property
    def listing(self) -> JoinSpec:
        """The join that finds the matches, whether units give out these or their totals."""
        if self.join.aggs is None:
            return self.join
        return replace(self.join, how="inner", group_by=(), aggs=None)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must be as it was when a checkpoint's state was written."""
        return {
            "format": STATE_FORMAT,
            "condition": self.listing.on or "",
            "how": self.listing.how,
            "window": (self.listing.window or FullHistory()).to_dict(),
            "order_by": None if self.join.order_by is None else list(self.join.order_by),
            "number of units": self.units,
            "routing": self.routing.to_value(),
            "left columns": _columns(self.schema("left")),
            "right columns": _columns(self.schema("right")),
            "self-join": self.join.self_join,
            **self._beside_matches(),
        }

    def _beside_matches(self) -> dict[str, Any]:
        """What else identifies totals and nearest matches."""
        join = self.join
        if join.nearest is not None:
            return {"nearest match": _plain(join.nearest.to_dict())}
        if join.aggs is None:
            return {}
        kept = ("left",) if self.keeps_left else ()
        return {"aggregates": _plain((join.group_by, dict(join.aggs), *kept))}

    @cached_property
    def older_places(self) -> int:
        """Units of routings before this one: they keep what they have and store nothing."""
        return sum(plan.places(self.units) for plan in self.routing.older)

    def check_identity(self, saved: dict[str, Any]) -> None:
        """Refuse state that another join has written; the same join may be written differently."""
        if saved == self.identity or saved in self.accepts:
            return
        for what in self.differences(saved):
            was, now = _read_saved(saved, what), self.identity[what]
            if what == "number of units":
                raise SnapshotError(
                    f"thetajoin: the checkpoint's number of units is {was} and the join's is "
                    f"{now}: pass units={was} to go on with it"
                )
            if what == "routing":
                raise SnapshotError(
                    f"thetajoin: the checkpoint's rows were sent to units by routing={was!r} and "
                    f"the join's are by {now!r}: pass routing={self._as_passed(was)} to go on with "
                    "it"
                )
            raise SnapshotError(
                f"thetajoin: the checkpoint holds the state of another join: its {what} was "
                f"{was!r} and is now {now!r}; use a new checkpointLocation, or the join it was "
                "made with"
            )

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """What differs between this join and a saved identity."""
        different = []
        for what, now in self.identity.items():
            was = _read_saved(saved, what)
            if was == now or self._same(what, was, now):
                continue
            if what != "routing" or not self._goes_on(was):
                different.append(what)
        return different

    def _goes_on(self, was: Any) -> bool:
        """Whether the routing is a successor of the checkpoint's."""
        try:
            before = Routing.from_value(was)
        except OptionError:
            return False
        chain = (*before.older, replace(before, older=()))
        return len(chain) <= len(self.routing.older) and self.routing.older[: len(chain)] == chain

    @staticmethod
    def _as_passed(routing: Any) -> str:
        """The argument that asks for a checkpoint's routing."""
        if isinstance(routing, str):
            return repr(routing)
        if routing["kind"] in ("cells", "matrix"):
            return repr(routing["kind"])
        return "the tj.routing(...) it was started with"

    def _same(self, what: str, was: Any, now: Any) -> bool:
        """Whether two texts mean the same."""
        try:
            if what == "condition":
                return self._meaning(was) == self._meaning(now)
            if what == "window":
                return window_from_dict(was) == window_from_dict(now)
            if what.endswith("columns"):  # older ones say which are never NULL
                return bool(was.replace(" not null", "") == now)
        except (ThetaJoinError, AttributeError, TypeError):
            pass
        return False

    def _meaning(self, on: str) -> str:
        schemas = (storage_schema(self.schema(side)) for side in ("left", "right"))
        return canonical_text(compile_condition(on, *schemas).expr) if on else ""

    def schema(self, side: str) -> pa.Schema:
        """A side's Arrow schema."""
        saved = self.left_schema if side == "left" else self.right_schema
        return schema_from_bytes(saved)

    def compile(self) -> CompiledJoin:
        """The join as a unit runs it: a micro-batch becomes a segment, which others can map."""
        given: dict[str, Any] = {"threads": 1, "index": PO_JOIN, **self.join.options}
        if given["index"] == AUTO:
            given["index"] = PO_JOIN
        options = given | {"merge": "inline", "head_rows": 0}
        spec = replace(self.listing, options=options)
        return compile_join(spec, self.schema("left"), self.schema("right"))

    def state(self, unit: int) -> JoinState:
        """An empty join with this unit's share: of all that it is sent, or of all rows."""
        join = get_compiled(self)
        share = Share() if self.routing.meets else Share.of(join.keeps, unit, self.units)
        share = replace(share, stores=unit >= self.older_places)
        if self.join.aggs is None:
            return join.new_state(share)
        from thetajoin.spark.totals import PartialState

        return PartialState(join, _AGGREGATES.get_or_make(self.label, self.parse_aggregates), share)

    def parse_aggregates(self) -> AggSpec:
        """The totals that are asked for."""
        from thetajoin.aggregate.totals import TotalsJoin

        return TotalsJoin(self.join, self.schema("left"), self.schema("right")).aggregates


@dataclass(frozen=True)
class StreamSettings:
    """What a job says of all joins of streams in its query, handed down as their `settings`.

    late: the folder for late rows. accepts: identities of joins whose state may be gone on with.
    routing: how rows are sent to units. planned: takes in the joins, as they are planned.
    """

    late: str | None = None
    accepts: tuple[dict[str, Any], ...] = ()
    routing: str | None = None
    planned: list[UnitSpec] = field(default_factory=list)


def get_compiled(spec: UnitSpec) -> CompiledJoin:
    """The compiled join, once for each worker process."""
    return _COMPILED.get_or_make(spec.label, spec.compile)
