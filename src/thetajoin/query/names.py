"""What a query's names mean: which table in which FROM each column of it is one of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from thetajoin.errors import ConditionError, suggest
from thetajoin.predicate.literals import parse_number
from thetajoin.predicate.parse import Source
from thetajoin.predicate.signatures import MismatchError
from thetajoin.query.frames import (
    At,
    Frame,
    Item,
    at_of,
    conjuncts,
    field_of,
    is_bare,
    is_closed,
    is_star,
    renamed,
)
from thetajoin.query.join import schema_of
from thetajoin.query.text import MOST_DIGITS, is_path

if TYPE_CHECKING:
    from thetajoin.query.run import Tables

MOST_ROWS = 2**31 - 1  # as in Spark, whose LIMIT and OFFSET are integers
_GENERATORS = ("explode", "posexplode", "inline", "stack", "json_tuple", "unnest")
_CLAUSES = (
    "where",
    "distinct",
    "group",
    "having",
    "qualify",
    "order",
    "windows",
    "sort",
    "cluster",
    "distribute",
)


@dataclass
class _Named:
    """A query in WITH: its columns, and whether it names nothing that is around it."""

    columns: list[str] | None
    closed: bool = True


class Resolver:
    """A walk over a query that says of each column whose it is, and finds mistakes in names."""

    def __init__(self, source: Source, tables: Tables, stem: str) -> None:
        self.source, self.tables, self.stem = source, tables, stem
        self.frames: list[Frame] = []
        self._unnamed = 0

    def query(
        self, node: exp.Expr, outer: Frame | None = None, ctes: dict[str, _Named] | None = None
    ) -> list[str] | None:
        """Look through a query; the names of its columns, if they are known."""
        ctes = self._with(node, outer, ctes or {})
        if isinstance(node, exp.Select):
            return self._select(node, outer, ctes)
        if isinstance(node, exp.Values):
            return self._values(node)
        if not isinstance(node, exp.Subquery | exp.SetOperation):
            return None
        if isinstance(node.this, exp.Table):
            for table in node.find_all(exp.Table):
                self._table(table, ctes)
            return None
        found = self.query(node.this, outer, ctes)
        if isinstance(node, exp.SetOperation):
            self.query(node.expression, outer, ctes)
        return found

    def _with(
        self, node: exp.Expr, outer: Frame | None, ctes: dict[str, _Named]
    ) -> dict[str, _Named]:
        with_: Any = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            given = [column.name for column in cte.args["alias"].args.get("columns") or ()]
            name, query, first = cte.alias.lower(), cte.this, len(self.frames)
            if with_.args.get("recursive") and isinstance(query, exp.SetOperation):
                inside = self._with(query, outer, ctes)
                columns = self.query(query.this, outer, inside)
                itself = _Named(given or columns, closed=False)
                self.query(query.expression, outer, {**inside, name: itself})
            else:
                columns = self.query(query, outer, ctes)
            ctes = {
                **ctes,
                name: _Named(given or columns, is_closed(query, first)),
            }
        return ctes

    def _select(
        self, select: exp.Select, outer: Frame | None, ctes: dict[str, _Named]
    ) -> list[str] | None:
        frame = Frame(len(self.frames), select, outer)
        self.frames.append(frame)
        select.meta["frame"] = frame.number
        start = select.args.get("from_")
        nodes = [start.this] if start is not None else []
        if frame.joins and not nodes:
            raise self.source.error("the query has no FROM before its JOIN")
        for node in nodes + [join.this for join in frame.joins]:
            frame.limit = len(frame.items)
            frame.items.append(self._item(node, frame, ctes))
        self._check_names(frame)
        for at, join in enumerate(frame.joins, 1):
            frame.limit, frame.inside = at + 1, at
            if join.args.get("kind") in ("SEMI", "ANTI"):
                right = join.args.get("side") == "RIGHT"
                for one in frame.items[:at] if right else [frame.items[at]]:
                    one.hidden_by = at if one.hidden_by < 0 else one.hidden_by
            self._merge(frame, join, at)
            for key in ("on", "match_condition"):
                if join.args.get(key) is not None:
                    self._inside(join.args[key], frame, ctes, "on")
        frame.inside, frame.limit = -1, len(frame.items)
        for lateral in select.args.get("laterals") or ():
            self._inside(lateral.this, frame, ctes, "on")
            alias = lateral.args["alias"]
            named = {c.name: c.name for c in alias.args.get("columns") or ()} or None
            frame.items.append(Item(lateral, {(alias.name or "").lower(): named}, closed=False))
            frame.limit += 1
        self._spell(frame)
        frame.shown = {e.alias.lower(): e for e in select.expressions if isinstance(e, exp.Alias)}
        for item in select.expressions:
            self._inside(item, frame, ctes, "select")
        names = self._name(frame)
        for key in _CLAUSES:
            clause = select.args.get(key)
            for part in clause if isinstance(clause, list) else [clause]:
                if part is not None:
                    self._inside(part, frame, ctes, key)
        self._check_clauses(frame)
        return names

    # What stands in FROM

    def _item(self, node: exp.Expr, frame: Frame, ctes: dict[str, _Named]) -> Item:
        """What stands in FROM."""
        inner = node.this
        while isinstance(inner, exp.Subquery) and not inner.args.get("joins") and not inner.alias:
            inner = inner.this  # more parentheses
        if isinstance(node, exp.Subquery) and isinstance(inner, exp.Table | exp.Subquery):
            return self._parenthesised(node, inner, frame, ctes)
        alias = node.args.get("alias")
        given = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        item, name, closed = Item(node, {}), node.alias, True
        columns: list[str] | None = None
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            columns = self._table(node, ctes, None if given else item)
            name = name or node.meta["called"]
            if any(node.args.get(key) for key in ("pivots", "sample", "joins", "laterals")):
                closed, item.table = False, None
                columns = None if node.args.get("pivots") else columns
        elif isinstance(node, exp.Subquery):
            columns = self.query(node, frame, ctes)
        elif isinstance(node, exp.Values):
            columns = self._values(node)
            self._inside(node, frame, ctes, "on")
        else:
            closed = False
            if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
                columns = given or ["id"]  # as Spark calls it
                called = exp.to_identifier(name or "range")
                named = exp.TableAlias(this=called, columns=[exp.to_identifier(c) for c in columns])
                node.set("alias", named)
            if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
                columns = self.query(node.this, frame, ctes)
            else:
                for key, part in node.args.items():
                    for one in part if isinstance(part, list) else [part]:
                        if isinstance(one, exp.Expr) and key != "alias":
                            self._inside(one, frame, ctes, "on")
        item.closed = closed and is_closed(node, frame.number + 1)
        columns = given or columns
        item.names = {name.lower(): None if columns is None else {c: c for c in columns}}
        return item

    def _table(
        self, node: exp.Table, ctes: dict[str, _Named], item: Item | None = None
    ) -> list[str] | None:
        """The columns of a table that is named."""
        if not isinstance(node.this, exp.Identifier):
            return None
        name = ".".join(part.name for part in node.parts)
        node.meta["called"] = PurePath(name).name.partition(".")[0] if is_path(name) else node.name
        named = ctes.get(name.lower()) if len(node.parts) == 1 else None
        if named is not None:
            node.meta["open"] = not named.closed
            return None if named.columns is None else list(named.columns)
        node.meta["given"] = table = self.tables.name(name)
        schema = schema_of(self.tables.of(table)[0])
        if item is not None:
            item.table, item.schema = table, schema
        return list(schema.names)

    def _parenthesised(
        self, node: exp.Subquery, first: exp.Expr, frame: Frame, ctes: dict[str, _Named]
    ) -> Item:
        """A join in parentheses, as the query that it is; its tables keep their names outside."""
        inner = exp.Select(
            expressions=[exp.Star()],
            from_=exp.From(this=first),
            joins=first.args.pop("joins", None) or [],
        )
        node.set("this", inner)
        at, alias = len(self.frames), node.alias
        if not alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(self._made_up())))
        columns = self.query(node, frame, ctes)
        item = Item(node, {}, closed=is_closed(node, at))
        if alias:
            item.names = {alias.lower(): None if columns is None else {c: c for c in columns}}
            return item
        if columns is None:
            raise self.source.error(
                "a join in parentheses of what has unknown columns needs a name"
            )
        below, frame.spelled = self.frames[at], True
        # What USING made goes by no table's name, all else by that of its own.
        made: dict[str, str] = {}
        outputs = []
        for low, column in below.merged.items():
            shown = next(n for i in below.items for n in i.columns or () if n.lower() == low)
            made[shown] = f"{node.alias}_{shown}"
            outputs.append(renamed(column.copy(), made[shown]))
        item.names = {node.alias: made}
        for place, name, own in below.visible():
            item.names[name] = named = {shown: f"{name}_{shown}" for shown in own or ()}
            if name.startswith(self.stem) and len(below.items[place].names) > 1:
                made |= named  # parentheses inside these
            outputs += [
                renamed(below.column(At(below.number, place, real)), f"{name}_{shown}")
                for shown, real in (own or {}).items()
            ]
        inner.set("expressions", outputs)
        return item

    def _made_up(self) -> str:
        self._unnamed += 1
        return f"{self.stem}_{self._unnamed}"

    def _values(self, node: exp.Values) -> list[str] | None:
        """The columns of VALUES, which Spark calls col1, col2 and so on."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            return [column.name for column in alias.args["columns"]]
        if not node.expressions:
            return None
        first = node.expressions[0]
        width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
        names = [f"col{at}" for at in range(1, width + 1)]
        if alias is None:
            alias = exp.TableAlias(this=exp.to_identifier(self._made_up()))
            node.set("alias", alias)
        alias.set("columns", [exp.to_identifier(name) for name in names])
        return names

    def _check_names(self, frame: Frame) -> None:
        """Tell tables of one name apart where that is possible: the same table, named twice."""
        known: dict[str, Item] = {}
        for item in frame.items:
            name, node = item.name, item.node
            if name and name not in known:
                known[name] = item
                continue
            same = name and item.table is not None and known[name].table == item.table
            if name and (not same or node.alias or known[name].node.alias):
                raise self.source.error(f"two tables are called {name!r}", hint="give one an alias")
            new = f"{name}_{len(known)}" if name else self._made_up()
            # Both go by the old name, so that naming a column by it is ambiguous.
            item.names = {new: item.columns} | ({name: item.columns} if name else {})
            node.set("alias", exp.TableAlias(this=exp.to_identifier(new, quoted=True)))

    def _merge(self, frame: Frame, join: exp.Join, at: int) -> None:
        """Write USING and NATURAL as ON, and say what the columns are that they make of several."""
        item, asof = frame.items[at], join.args.get("method") == "ASOF"
        using = list(join.args.get("using") or ())
        natural = join.args.get("method") == "NATURAL"
        if not using and not natural:
            return
        if any(i.columns is None for i in frame.items[: at + 1]):
            item.names = dict.fromkeys(item.names)  # whose a name is, only the engine knows
            return
        before: dict[str, dict[At, None]] = {}
        for place, _, columns in frame.visible():
            for shown, real in (columns or {}).items():
                if place < at and frame.is_bare(place, columns, shown):
                    before.setdefault(shown.lower(), {})[At(frame.number, place, real)] = None
        own = {name.lower(): real for name, real in (item.columns or {}).items()}
        if natural:
            using = [
                exp.to_identifier(name) for name in item.columns or () if name.lower() in before
            ]
        conditions: list[exp.Expr] = []
        for part in using:
            low, side = part.name.lower(), join.args.get("side")
            left = frame.merged.get(low)
            if left is None or low not in own:
                self._check_using(part, list(before.get(low, ())), before, item, asof=asof)
                left = frame.column(next(iter(before[low])))
            right = frame.column(At(frame.number, at, own[low]))
            nearest_ = asof and part is using[-1] and join.args.get("match_condition") is None
            kind = exp.GTE if nearest_ else exp.EQ
            conditions.append(kind(this=left.copy(), expression=right))
            frame.merged[low] = right if side == "RIGHT" and not asof else left
            if side == "FULL" or (asof and side == "RIGHT"):
                both = [left.copy(), right.copy()]
                frame.merged[low] = exp.Anonymous(this="coalesce", expressions=both)
            item.merged.add(low)
        conditions += conjuncts(join.args.get("on"))
        # Tables without a name in common: NATURAL takes every pair.
        join.set("on", exp.and_(*conditions, copy=False) if conditions else exp.true())
        join.set("using", None)
        join.set("method", None if natural else join.args.get("method"))

    def _check_using(
        self, part: exp.Expr, found: list[At], before: Any, item: Item, *, asof: bool
    ) -> None:
        """Refuse a column of USING that is not on both sides once."""
        name, own = part.name, list(item.columns or ())
        here = name.lower() in map(str.lower, own)
        if len(found) == 1 and here:
            return
        if len(found) > 1:
            raise self.source.error_at(
                rf"\busing\s*\([^)]*\b{name}\b|\bnatural\b.*?\bjoin\b",
                f"column {name!r} is ambiguous: several tables before {item.name!r} have it",
                "write ON a.k = b.k",
            )
        if not asof:
            where = repr(item.name) if found else "the tables before it"
            problem = f"USING names {name!r}, which is not in {where}"
            raise self.source.error_at(rf"\busing\s*\([^)]*\b{name}\b", problem)
        if here:
            problem = f"{item.name!r} is the table that is joined"
            hint = "USING names columns that those before it have, too"
            raise self.source.error(problem, part, hint)
        known = own if found else list(before)
        raise self.source.error(f"unknown column {name!r}", part, suggest(name, known))

    # Outputs

    def _spell(self, frame: Frame) -> None:
        """Write `*` out where several tables stand in FROM, so that each column has a name."""
        known = all(columns is not None for _, _, columns in frame.visible())
        stars = [item for item in frame.select.expressions if is_star(item)]
        several = len(frame.items) > 1 or any(item.table is not None for item in frame.items)
        # EXISTS and IN may become joins, whose rows have other names than the table's.
        inside = frame.select.find(exp.Exists, exp.In)
        deep = any(isinstance(s, exp.Column) and len(s.parts) > 2 for s in stars)
        if not stars or not known or deep or not (several or inside or frame.spelled):
            return
        outputs: list[exp.Expr] = []
        for item in frame.select.expressions:
            outputs += self._starred(frame, item) if is_star(item) else [item]
        frame.select.set("expressions", outputs)

    def _starred(self, frame: Frame, item: exp.Expr) -> list[exp.Expr]:
        wanted = item.table.lower() if isinstance(item, exp.Column) else None
        if wanted is not None and wanted not in {name for _, name, _ in frame.visible()}:
            raise self.source.error(f"unknown table {wanted!r} in the query", item)
        star = item.this if isinstance(item, exp.Column) else item
        without = {part.name.lower() for part in star.args.get("except_") or ()}
        instead = {part.alias.lower(): part.this for part in star.args.get("replace") or ()}
        other = {part.this.name.lower(): part.alias for part in star.args.get("rename") or ()}
        found: list[exp.Expr] = []
        seen: set[int] = set()
        for place, name, columns in frame.visible():
            # A table that goes by two names is given once, one in parentheses by each of them.
            again = place in seen and columns is frame.items[place].columns
            if (wanted is None and again) or wanted not in (None, name):
                continue
            seen.add(place)
            for shown, real in (columns or {}).items():
                low = shown.lower()
                if low in without or (wanted is None and not frame.is_bare(place, columns, shown)):
                    continue
                output: exp.Expr = frame.column(At(frame.number, place, real))
                if wanted is None and low in frame.merged:
                    output = frame.merged[low].copy()
                output = instead[low].copy() if low in instead else output
                found.append(renamed(output, other.get(low, shown)))
        return found

    def _name(self, frame: Frame) -> list[str] | None:
        """Give each output a name that no other has; the names, if all are known."""
        names: list[str] = []
        known, outputs = True, frame.select.expressions
        for at, item in enumerate(outputs):
            inner = item.unalias()
            if is_star(item):
                columns = frame.items[0].columns if len(frame.items) == 1 else None
                plain = not any((item.find(exp.Star) or item).args.values())
                inside = isinstance(item, exp.Column) and item.table.lower() not in {
                    name for _, name, _ in frame.visible()
                }
                known = known and columns is not None and plain and not inside
                names += columns or ()
                continue
            generator = isinstance(inner, exp.Anonymous) and inner.name.lower()
            if isinstance(item, exp.Aliases) or (
                generator and generator.removesuffix("_outer") in _GENERATORS
            ):
                known = False
                continue
            name = item.alias or inner.output_name or inner.sql(dialect="spark")
            taken, new = {other.lower() for other in names}, name
            while new.lower() in taken:
                new += "_right"
            if not item.alias or new != name:
                outputs[at] = renamed(inner, new)
                outputs[at].parent = frame.select
            names.append(new)
        return names if known else None

    # Columns

    def _inside(self, tree: exp.Expr, frame: Frame, ctes: dict[str, _Named], clause: str) -> None:
        """Look through an expression, and queries in it."""

        def stop(node: exp.Expr) -> bool:
            return isinstance(node, exp.Query)

        self._unquote(tree, frame)
        for node in list(tree.walk(prune=stop)):
            if isinstance(node, exp.Query):
                self.query(node, frame, ctes)
            elif isinstance(node, exp.Placeholder | exp.Parameter):
                raise self.source.error("a parameter is not supported in a query", node)
            elif isinstance(node.parent, exp.Group | exp.Ordered) and _is_number(node):
                continue
            elif _is_number(node) and len(node.name) > 40:
                try:
                    parse_number(node.name)
                except MismatchError as problem:
                    raise self.source.error(str(problem), node, problem.hint) from None
            elif isinstance(node, exp.Column) and not is_star(node) and "at" not in node.meta:
                self._resolve(node, frame, clause)

    def _unquote(self, tree: exp.Expr, frame: Frame) -> None:
        """Take what is in double quotes for a name in a comparison that has no other."""
        for node in tree.find_all(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between):
            for text in (
                [] if node.find(exp.Column, exp.Query) else list(node.find_all(exp.Literal))
            ):
                quoted = self.source.text[text.meta.get("start", 0) :].startswith('"')
                if text.is_string and quoted:
                    named = exp.column(exp.to_identifier(text.name, quoted=True))
                    named.this.meta.update(text.meta)
                    try:
                        known = self._find(frame, [text.name], named)
                    except ConditionError:
                        known = None
                    if known is not None:
                        text.replace(named)

    def _resolve(self, node: exp.Column, frame: Frame, clause: str) -> None:
        parts = [part.name for part in node.parts]
        first, alone = parts[0].lower(), len(parts) == 1
        around = node.find_ancestor(exp.Lambda)
        while around is not None:
            if first in {p.name.lower() for p in around.expressions}:
                node.meta["seen"] = len(self.frames)
                return
            around = around.find_ancestor(exp.Lambda)
        at: Frame | None = frame
        while at is not None:
            shown = alone and first in at.shown and clause != "on"
            if shown and clause in ("order", "sort"):
                node.meta["seen"] = at.number
                return
            if first in at.merged and first not in {name for _, name, _ in at.visible()}:
                made = field_of(at.merged[first].copy(), parts[1:])
                output = isinstance(node.parent, exp.Select)
                node.replace(renamed(made, parts[-1]) if output else made)
                return
            found = self._find(at, parts, node)
            if found is not None:
                node.meta["at"] = found
                return
            if shown or any(columns is None for _, _, columns in at.visible()):
                node.meta.update(seen=at.number, shown=shown)
                return
            at, clause = at.outer, "outer"
        if not is_bare(node):
            raise self._unknown(frame, parts, node)

    def _find(self, frame: Frame, parts: list[str], node: exp.Expr) -> At | None:
        """A column of a FROM, if it has one of that name."""
        first = parts[0].lower()
        tables = [(p, columns) for p, name, columns in frame.visible() if name == first]
        if len(parts) > 1 and tables:
            found = [
                At(frame.number, place, columns[real], tuple(parts[2:]))
                for place, columns in tables
                if columns is not None and (real := _match(columns, parts[1])) is not None
            ]
            if len(found) > 1:
                raise self.source.error(
                    f"column {'.'.join(parts)!r} is ambiguous", node, "give each table an alias"
                )
            if not found and all(columns is not None for _, columns in tables):
                known = [name for _, columns in tables for name in columns or ()]
                raise self.source.error(
                    f"unknown column {parts[1]!r}", node, suggest(parts[1], known)
                )
            return found[0] if found else None
        owners: dict[tuple[int, str], str] = {}
        for place, name, columns in frame.visible():
            real = None if columns is None else _match(columns, parts[0])
            if real is not None and columns is not None and not frame.is_made(place, columns, real):
                owners.setdefault((place, columns[real]), name)
        if len(owners) > 1:
            hint = " or ".join(f"{name}.{parts[0]}" for name in owners.values())
            raise self.source.error(f"column {parts[0]!r} is ambiguous", node, f"write {hint}")
        for place, real in owners:
            return At(frame.number, place, real, tuple(parts[1:]))
        return None

    def _unknown(self, frame: Frame, parts: list[str], node: exp.Expr) -> ConditionError:
        first = parts[0].lower()
        visible = list(frame.visible())
        for at, item in enumerate(frame.items):
            meant = len(parts) > 1 and first in item.names
            if item.hidden_by >= 0 and (meant or _match(item.columns or {}, parts[0])):
                join = frame.joins[item.hidden_by - 1]
                where = "tables before it" if at == item.hidden_by else "table behind it"
                why = f"gives no columns: a {join.args['kind']} JOIN has those of the {where}"
                called = parts[0] if meant else item.name
                return self.source.error(f"{called!r} {why}", node)
            if meant and at >= frame.limit:
                problem = f"{parts[0]!r} is joined later: its columns are not there"
                return self.source.error(problem, node)
        if len(parts) > 1:
            known = [name for _, name, _ in visible if not name.startswith(self.stem)]
            return self.source.error(
                f"unknown table {parts[0]!r} in the query", node, suggest(parts[0], known)
            )
        named = [name for _, _, columns in visible for name in columns or ()]
        return self.source.error(f"unknown column {parts[0]!r}", node, suggest(parts[0], named))

    def _check_clauses(self, frame: Frame) -> None:
        """Refuse what no engine would take, in the query's own words."""
        select = frame.select
        group, having, order = (select.args.get(key) for key in ("group", "having", "order"))
        for item in group.expressions if group is not None else ():
            self._check_ordinal(item, frame, "GROUP BY")
        for item in order.expressions if order is not None else ():
            self._check_ordinal(item.this, frame, "ORDER BY")
        if having is not None and group is None and not select.find(exp.Func):
            problem = f"HAVING without groups: {having.this.sql(dialect='spark')}"
            raise self.source.error_at(r"\bhaving\b.*", problem, "use WHERE")
        distinct = select.args.get("distinct")
        stars = any(map(is_star, select.expressions))
        if distinct is not None and not distinct.args.get("on") and order is not None and not stars:
            given = {at_of(c) for e in select.expressions for c in e.find_all(exp.Column)}
            for item in order.expressions:
                if not {at_of(c) for c in item.find_all(exp.Column)} <= given | {None}:
                    problem = "ORDER BY of SELECT DISTINCT names something that is not selected"
                    raise self.source.error(f"{problem}: {item.this.sql(dialect='spark')}")
        for key in ("limit", "offset"):
            clause = select.args.get(key)
            rows = clause.expression if clause is not None else None
            digits = rows.name if isinstance(rows, exp.Literal) and rows.name.isdigit() else ""
            if len(digits) > MOST_DIGITS or int(digits or 0) > MOST_ROWS:
                problem = f"{key.upper()} is at most {MOST_ROWS}"
                raise self.source.error_at(rf"\b{key}\b.*", problem)

    def _check_ordinal(self, item: exp.Expr, frame: Frame, clause: str) -> None:
        """Refuse a position that no output has."""
        outputs = frame.select.expressions
        if not _is_number(item) or any(map(is_star, outputs)):
            return
        small = item.name.isdigit() and len(item.name) <= MOST_DIGITS
        if not small or not 1 <= int(item.name) <= len(outputs):
            text = item.name if len(item.name) <= MOST_DIGITS else "by this number"
            raise self.source.error(f"{clause} {text}: there are {len(outputs)} columns", item)


def _is_number(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _match(columns: dict[str, str], name: str) -> str | None:
    """A name as a table has it: exactly, or but for case if that is clear."""
    if name in columns:
        return name
    close = [other for other in columns if other.lower() == name.lower()]
    return close[0] if len(close) == 1 else None
