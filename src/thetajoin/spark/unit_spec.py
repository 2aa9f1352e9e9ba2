"""A streaming join as a value that travels to Spark's Python workers."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from thetajoin.engine.compiled import CompiledJoin, JoinConfig
from thetajoin.engine.intake import storage_schema
from thetajoin.engine.layout import How
from thetajoin.engine.nearest import nearest_from_dict
from thetajoin.engine.nearest_state import new_state
from thetajoin.engine.options import Options
from thetajoin.engine.share import Share
from thetajoin.engine.state import JoinState
from thetajoin.errors import OptionError, SnapshotError, ThetaJoinError
from thetajoin.ipc import schema_from_bytes, schema_to_bytes
from thetajoin.planner.route_plan import BROADCAST, Routing
from thetajoin.predicate import compile_condition, condition_text
from thetajoin.predicate.canonical import canonical
from thetajoin.registry import AUTO, PO_JOIN
from thetajoin.spark.remembered import Remembered
from thetajoin.spark.unit_rows import STATE_FORMAT
from thetajoin.window.windows import window_from_dict

_COMPILED: Remembered[CompiledJoin] = Remembered(8)


def _columns(schema: pa.Schema) -> str:
    """A schema as text; whether a column can be NULL is not said, since it changes nothing."""
    return str(pa.schema([field.with_nullable(True) for field in schema]))


def _plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value))


def _saved(identity: dict[str, Any], what: str) -> Any:
    """What a saved identity says; those from before there were routings are of the only one."""
    return identity.get(what, "broadcast") if what == "routing" else identity.get(what)


@dataclass(frozen=True)
class UnitSpec:
    """Everything a unit needs to know; plain values only, so that pickling it is cheap."""

    on: str
    how: How
    window: dict[str, Any]
    order_by: tuple[str, str] | None
    suffix: str
    self_join: bool
    left_schema: bytes
    right_schema: bytes
    label: str
    units: int = 1
    # Which units a row is sent to.
    routing: Routing = BROADCAST
    # How far behind the watermark, in microseconds, rows of each side may be and not be late: those
    # of another join carry the time of their older half.
    lags: tuple[int, int] = (0, 0)
    options: dict[str, Any] = field(default_factory=dict)
    # Groups and aggregates, where the units give out totals in place of matches.
    totals: tuple[Any, dict[str, str]] | None = None
    # Whether these have the left rows' groups that have no match, too.
    keeps_left: bool = False
    # What is nearest, where the units give out only that.
    nearest: dict[str, Any] | None = None
    # Output columns that units leave out, each with the one that holds the same in every row.
    repeated: tuple[tuple[int, int], ...] = ()
    # Identities of joins whose state this one was found able to go on with (`spark.migrate`).
    accepts: tuple[dict[str, Any], ...] = ()
    # The folder that late rows are written to.
    late: str | None = None

    @classmethod
    def of(cls, config: JoinConfig, options: dict[str, Any], **more: Any) -> UnitSpec:
        """From a configuration that has been checked, and its options as they were given."""
        return cls(
            on="" if config.on is None else condition_text(config.on),
            how=config.how,
            window=config.window.to_dict(),
            order_by=config.order_by,
            suffix=config.suffix,
            self_join=config.self_join,
            left_schema=schema_to_bytes(config.left_schema),
            right_schema=schema_to_bytes(config.right_schema),
            label=uuid.uuid4().hex[:12],
            options=options,
            nearest=None if config.nearest is None else config.nearest.to_dict(),
            **more,
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must not change against a checkpoint's state."""
        return {
            "format": STATE_FORMAT,
            "condition": self.on,
            "how": self.how,
            "window": self.window,
            "order_by": None if self.order_by is None else list(self.order_by),
            "number of units": self.units,
            "routing": self.routing.to_value(),
            "left columns": _columns(self.schema("left")),
            "right columns": _columns(self.schema("right")),
            "self-join": self.self_join,
            **({} if self.totals is None else {"aggregates": self._aggregates(self.totals)}),
            **({} if self.nearest is None else {"nearest match": _plain(self.nearest)}),
        }

    def _aggregates(self, totals: tuple[Any, dict[str, str]]) -> list[Any]:
        """Groups and aggregates as JSON gives them back."""
        kept = ("left",) if self.keeps_left else ()
        plain: list[Any] = _plain((*totals, *kept))
        return plain

    @cached_property
    def older_places(self) -> int:
        """Units of routings before this one: they keep what they have and store nothing."""
        return sum(plan.places(self.units) for plan in self.routing.older)

    def check_identity(self, saved: dict[str, Any]) -> None:
        """Refuse state that another join has written; another way to write this one is none."""
        if saved == self.identity or saved in self.accepts:
            return
        for what in self.differences(saved):
            was, now = _saved(saved, what), self.identity[what]
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
        """What of this join is not as in an identity that was saved."""
        different = []
        for what, now in self.identity.items():
            was = _saved(saved, what)
            if was == now or self._same(what, was, now):
                continue
            if what != "routing" or not self._goes_on(was):
                different.append(what)
        return different

    def _goes_on(self, was: Any) -> bool:
        """Whether the routing is one that followed the checkpoint's."""
        try:
            before = Routing.from_value(was)
        except OptionError:
            return False
        chain = (*before.older, replace(before, older=()))
        return len(chain) <= len(self.routing.older) and self.routing.older[: len(chain)] == chain

    @staticmethod
    def _as_passed(routing: Any) -> str:
        """What to write in a call for a checkpoint's routing."""
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
        return canonical(compile_condition(on, *schemas).expr) if on else ""

    def schema(self, side: str) -> pa.Schema:
        """A side's Arrow schema."""
        saved = self.left_schema if side == "left" else self.right_schema
        return schema_from_bytes(saved)

    @cached_property
    def config(self) -> JoinConfig:
        """The embedded engine's configuration."""
        return JoinConfig(
            self.on or None,
            self.schema("left"),
            self.schema("right"),
            how=self.how,
            window=window_from_dict(self.window),
            order_by=self.order_by,
            suffix=self.suffix,
            self_join=self.self_join,
            nearest=None if self.nearest is None else nearest_from_dict(self.nearest),
            options=self._options,
        )

    @property
    def _options(self) -> Options:
        """A micro-batch becomes a segment, which other workers can map; merges are part of it."""
        given: dict[str, Any] = {"threads": 1, "index": PO_JOIN} | self.options
        if given["index"] == AUTO:
            given["index"] = PO_JOIN
        return Options(**given | {"merge": "inline", "head_rows": 0})

    def state(self, unit: int) -> JoinState:
        """An empty join with this unit's share: of all that it is sent, or of all rows."""
        join = compiled_of(self)
        share = Share() if self.routing.meets else Share.of(join.keeps, unit, self.units)
        return new_state(join, share)


def compiled_of(spec: UnitSpec) -> CompiledJoin:
    """The compiled join, once for each worker process."""
    return _COMPILED.made(spec.label, lambda: CompiledJoin(spec.config))
