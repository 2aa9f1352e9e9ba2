"""A streaming join as a value that travels to Spark's Python workers."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin, compile_join
from thetajoin.engine.rows import storage_schema
from thetajoin.engine.spec import JoinSpec
from thetajoin.engine.state import JoinState
from thetajoin.engine.step import Share
from thetajoin.errors import OptionError, SnapshotError, ThetaJoinError
from thetajoin.ipc import schema_from_bytes, schema_to_bytes
from thetajoin.paper_options import AUTO, PO_JOIN
from thetajoin.planner.routing import BROADCAST, Routing
from thetajoin.predicate import compile_condition, condition_text
from thetajoin.predicate.render import canonical_text
from thetajoin.spark.tasks import Remembered
from thetajoin.spark.unit_rows import STATE_FORMAT
from thetajoin.window.windows import FullHistory, window_from_dict

if TYPE_CHECKING:
    from thetajoin.aggregate.spec import AggSpec

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
    joins whose state this one can continue (`jobs.migrate`). late: the folder for late rows.
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
        from thetajoin.spark.partials import PartialState

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
