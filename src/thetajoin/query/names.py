"""What a query's names mean: which table in which FROM each column of it is one of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

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
    is_star,
    renamed,
)
from thetajoin.query.tables import Tables, is_path, schema_of
from thetajoin.query.text import MOST_DIGITS

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
    """A query in WITH: its columns, and the outermost FROM that it names something of."""

    columns: list[str] | None
    reach: float


class Resolver:
    """A walk over a query that says of each column whose it is, and finds mistakes in names."""

    def __init__(self, source: Source, tables: Tables, stem: str) -> None:
        self.source, self.tables, self.stem = source, tables, stem
        self.frames: list[Frame] = []
        self._reach = float("inf")  # the outermost FROM of which something was named
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
        found: list[str] | None = None
        if isinstance(node, exp.Subquery | exp.SetOperation):
            found = self.query(node.this, outer, ctes)
            node.meta["ctes"] = dict(ctes)
        if isinstance(node, exp.SetOperation):
            self.query(node.expression, outer, ctes)
        for table in [] if found is not None else node.find_all(exp.Table):
            if table.find_ancestor(exp.Query) is node:
                self._table(table, ctes)
        return found

    def _with(self, node: exp.Expr, outer: Frame | None, ctes: dict[str, _Named]) -> dict[str, Any]:
        with_: Any = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            given = [column.name for column in cte.args["alias"].args.get("columns") or ()]
            own, name = ctes, cte.alias.lower()
            if with_.args.get("recursive"):
                first = cte.this.copy()
                while isinstance(first, exp.SetOperation):
                    first = first.this
                at, reach = len(self.frames), self._reach
                known = given or self.query(first, outer, ctes)
                del self.frames[at:]
                self._reach = reach
                own = {**ctes, name: _Named(known, float("inf"))}
            columns, reach = self._apart(cte.this, outer, own)
            ctes = {**ctes, name: _Named(given or columns, reach)}
        return ctes

    def _apart(
        self, node: exp.Expr, outer: Frame | None, ctes: dict[str, _Named]
    ) -> tuple[list[str] | None, float]:
        """A query inside another: its columns, and the outermost FROM outside that it names."""
        start, before = len(self.frames), self._reach
        self._reach = float("inf")
        columns = self.query(node, outer, ctes)
        reach = self._reach if self._reach < start else float("inf")
        self._reach = min(before, self._reach)
        return columns, reach

    def _select(
        self, select: exp.Select, outer: Frame | None, ctes: dict[str, _Named]
    ) -> list[str] | None:
        frame = Frame(len(self.frames), select, outer)
        self.frames.append(frame)
        select.meta["frame"], select.meta["ctes"] = frame.number, ctes
        start = select.args.get("from_")
        nodes = [start.this] if start is not None else []
        if frame.joins and not nodes:
            raise self.source.error("the query has no FROM before its JOIN")
        for node in nodes + [join.this for join in frame.joins]:
            frame.limit = len(frame.items)
            frame.items.append(self._item(node, frame, ctes))
        self._check_names(frame)
        for at, join in enumerate(frame.joins, 1):
            item, frame.limit, frame.inside = frame.items[at], at + 1, at
            if join.args.get("kind") in ("SEMI", "ANTI"):
                right = join.args.get("side") == "RIGHT"
                for one in frame.items[:at] if right else [item]:
                    one.hidden_by = one.hidden_by if one.hidden else at
                    one.hidden = one.hidden or (
                        f"gives no columns: a {join.args['kind']} JOIN has those of the "
                        f"{'table behind it' if right else 'tables before it'}"
                    )
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

    def _item(self, node: exp.Expr, frame: Frame, ctes: dict[str, _Named]) -> Item:
        """What stands in FROM."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            return self._parenthesised(node, frame, ctes)
        alias = node.args.get("alias")
        given = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
        columns: list[str] | None = None
        reach, known = float("inf"), Item(node, {})
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            columns = self._table(node, ctes, known)
            odd = any(node.args.get(key) for key in ("pivots", "sample", "joins", "laterals"))
            if odd:
                known.closed, known.table = False, None
                columns = None if node.args.get("pivots") else columns
            reach = ctes[node.name.lower()].reach if known.table is None and not odd else reach
            self._reach = min(self._reach, reach)
        elif isinstance(node, exp.Subquery):
            columns, reach = self._apart(node, frame, ctes)
        elif isinstance(node, exp.Values):
            columns = self._values(node)
            self._inside(node, frame, ctes, "on")
        else:
            known.closed = False
            if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
                columns = given or ["id"]  # as Spark calls it
                node.set(
                    "alias",
                    exp.TableAlias(
                        this=exp.to_identifier(node.alias or "range"),
                        columns=[exp.to_identifier(column) for column in columns],
                    ),
                )
            if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Subquery):
                columns, _ = self._apart(node.this, frame, ctes)
            else:
                for part in node.args.values():
                    for one in part if isinstance(part, list) else [part]:
                        if isinstance(one, exp.Expr) and not isinstance(one, exp.TableAlias):
                            self._inside(one, frame, ctes, "on")
        if reach < float("inf"):
            known.closed = False
        columns = given or columns
        name = node.alias or (known.name if known.names else "")
        known.names = {
            name.lower(): None if columns is None else {column: column for column in columns}
        }
        if given:
            known.table = known.schema = None
        return known

    def _table(
        self, node: exp.Table, ctes: dict[str, _Named], known: Item | None = None
    ) -> list[str] | None:
        """The columns of a table that is named."""
        if not isinstance(node.this, exp.Identifier):
            return None
        name = ".".join(part.name for part in node.parts)
        called = PurePath(name).name.partition(".")[0] if is_path(name) else node.name
        if len(node.parts) == 1 and name.lower() in ctes:
            columns = ctes[name.lower()].columns
            found = None if columns is None else list(columns)
        else:
            table = self.tables.name(name)
            schema = schema_of(self.tables.of(table)[0])
            found = list(schema.names)
            if known is not None:
                known.table, known.schema = table, schema
        if known is not None:
            known.names = {called.lower(): None}
            if not node.alias:
                quoted = exp.to_identifier(called, quoted=True)
                node.meta["called"] = quoted
        return found

    def _parenthesised(self, node: exp.Subquery, frame: Frame, ctes: dict[str, _Named]) -> Item:
        """A join in parentheses, as the query that it is; its tables keep their names outside."""
        first = node.this
        inner = exp.Select(
            expressions=[exp.Star()],
            from_=exp.From(this=first),
            joins=first.args.pop("joins", None) or [],
        )
        node.set("this", inner)
        alias = node.alias
        if alias:
            columns, reach = self._apart(node, frame, ctes)
            named = None if columns is None else {column: column for column in columns}
            return Item(node, {alias.lower(): named}, closed=reach == float("inf"))
        self._unnamed += 1
        alias = f"{self.stem}_{self._unnamed}"
        node.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
        at = len(self.frames)
        columns, reach = self._apart(node, frame, ctes)
        below = self.frames[at]
        frame.spelled = True
        if columns is None:
            raise self.source.error(
                "a join in parentheses of what has unknown columns needs a name"
            )
        names: dict[str, dict[str, str] | None] = {alias: {}}
        outputs = iter(inner.expressions)
        below.limit = len(below.items)
        for _, name, own in below.visible():
            shown: dict[str, str] = {}
            for column in own or ():
                new = f"{name}_{column}" if name else column
                output = next(outputs)
                output.replace(renamed(output.unalias().copy(), new))
                shown[column] = new
            names[name] = shown
        every = [new for own in names.values() for new in (own or {}).values()]
        names[alias] = {}
        assert len(every) == len(inner.expressions)
        return Item(node, names, closed=reach == float("inf"))

    def _values(self, node: exp.Values) -> list[str] | None:
        """The columns of VALUES, which Spark calls col1, col2 and so on."""
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            return [column.name for column in alias.args["columns"]]
        rows = node.expressions
        if not rows:
            return None
        width = len(rows[0].expressions) if isinstance(rows[0], exp.Tuple) else 1
        names = [f"col{at}" for at in range(1, width + 1)]
        if alias is None:
            self._unnamed += 1
            alias = exp.TableAlias(this=exp.to_identifier(f"{self.stem}_{self._unnamed}"))
            node.set("alias", alias)
        alias.set("columns", [exp.to_identifier(name) for name in names])
        return names

    def _check_names(self, frame: Frame) -> None:
        """Tell tables of one name apart where that is possible: the same table, named twice."""
        known: dict[str, Item] = {}
        for item in frame.items:
            name, node = item.name, item.node
            if not name:
                self._unnamed += 1
                name = f"{self.stem}_{self._unnamed}"
                item.names = {name: item.columns}
                node.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
            elif name in known:
                same = item.table is not None and known[name].table == item.table
                if not same or node.alias or known[name].node.alias:
                    raise self.source.error(
                        f"two tables are called {name!r}", hint="give one an alias"
                    )
                self._unnamed += 1
                new = f"{name}_{self._unnamed}"
                # Both go by the old name, so that naming a column by it is ambiguous.
                item.names = {new: item.columns, name: item.columns}
                node.set("alias", exp.TableAlias(this=exp.to_identifier(new, quoted=True)))
                frame.spelled = True
                continue
            known[name] = item

    def _merge(self, frame: Frame, join: exp.Join, at: int) -> None:
        """Say what columns mean that USING and NATURAL make one of several."""
        item, asof = frame.items[at], join.args.get("method") == "ASOF"
        using = list(join.args.get("using") or ())
        natural = join.args.get("method") == "NATURAL"
        before: dict[str, list[At]] = {}
        frame.limit = at
        for place, _, columns in frame.visible():
            for shown, real in (columns or {}).items():
                found = At(frame.number, place, real)
                places = before.setdefault(shown.lower(), [])
                if found not in places and shown.lower() not in frame.items[place].merged:
                    places.append(found)
        frame.limit = at + 1
        if item.columns is None or any(i.columns is None for i in frame.items[:at]):
            if using or natural:
                item.names = dict.fromkeys(item.names)  # whose a name is, only the engine knows
            return
        own = {name.lower(): real for name, real in item.columns.items()}
        if natural:
            shared = [name for name in item.columns if name.lower() in before]
            using = [exp.to_identifier(name) for name in shared]
        conditions = []
        for part, part_ in enumerate(using, 1):
            name, low = part_.name, part_.name.lower()
            left = frame.merged.get(low)
            if left is None:
                left = self._one(frame, part_, before.get(low, []), item, asof=asof)
            if low not in own:
                if asof:
                    known = suggest(name, list(item.columns))
                    raise self.source.error(f"unknown column {name!r}", part_, known)
                raise self._not_using(name, repr(item.name))
            right = frame.column(At(frame.number, at, own[low]))
            nearest_ = asof and part == len(using) and join.args.get("match_condition") is None
            kind = exp.GTE if nearest_ else exp.EQ
            conditions.append(kind(this=left.copy(), expression=right))
            side = join.args.get("side")
            frame.merged[low] = left
            if side == "RIGHT" and not asof:
                frame.merged[low] = right
            elif side == "FULL" or (asof and side == "RIGHT"):
                both = [left.copy(), right.copy()]
                frame.merged[low] = exp.Anonymous(this="coalesce", expressions=both)
            item.merged.add(low)
        if using:
            join.set("on", exp.and_(*conditions, *conjuncts(join.args.get("on")), copy=False))
            join.set("using", None)
            join.set("method", None if natural else join.args.get("method"))

    def _one(
        self, frame: Frame, part: exp.Expr, found: list[At], item: Item, *, asof: bool
    ) -> exp.Expr:
        name = part.name
        if not found and asof:
            if item.columns is not None and _match(item.columns, name):
                problem = f"{item.name!r} is the table that is joined"
                hint = "USING names columns that those before it have, too"
                raise self.source.error(problem, part, hint)
            known = [n for _, _, columns in frame.visible() for n in columns or ()]
            raise self.source.error(f"unknown column {name!r}", part, suggest(name, known))
        if not found:
            raise self._not_using(name, "the tables before it")
        if len(found) > 1:
            raise self.source.error_at(
                rf"\busing\s*\([^)]*\b{name}\b|\bnatural\b.*?\bjoin\b",
                f"column {name!r} is ambiguous: several tables before {item.name!r} have it",
                "write ON a.k = b.k",
            )
        return frame.column(found[0])

    def _not_using(self, name: str, where: str) -> ConditionError:
        return self.source.error_at(
            rf"\busing\s*\([^)]*\b{name}\b", f"USING names {name!r}, which is not in {where}"
        )

    def _spell(self, frame: Frame) -> None:
        """Write `*` out where several tables stand in FROM, so that each column has a name."""
        known = all(columns is not None for _, _, columns in frame.visible())
        stars = [item for item in frame.select.expressions if is_star(item)]
        given = any(item.table is not None for item in frame.items)
        if not stars or not known or not (len(frame.items) > 1 or frame.spelled or given):
            return
        if any(isinstance(s, exp.Column) and len(s.parts) > 2 for s in stars):
            return
        outputs: list[exp.Expr] = []
        for item in frame.select.expressions:
            outputs += self._starred(frame, item) if is_star(item) else [item]
        frame.select.set("expressions", outputs)

    def _starred(self, frame: Frame, item: exp.Expr) -> list[exp.Expr]:
        wanted = item.table.lower() if isinstance(item, exp.Column) else None
        named = {name for _, name, _ in frame.visible()}
        if wanted is not None and wanted not in named:
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
                if low in without or (wanted is None and low in frame.items[place].merged):
                    continue
                output: exp.Expr = frame.column(At(frame.number, place, real))
                if wanted is None and low in frame.merged:
                    output = frame.merged[low].copy()
                output = instead[low].copy() if low in instead else output
                found.append(renamed(output, other.get(low, shown)))
        return found

    def _name(self, frame: Frame) -> list[str] | None:
        """Give each output a name that no other has."""
        names: list[str] | None = []
        taken: set[str] = set()
        for at, item in enumerate(frame.select.expressions):
            if is_star(item):
                columns = frame.items[0].columns if len(frame.items) == 1 else None
                plain = not any((item.find(exp.Star) or item).args.values())
                inside = isinstance(item, exp.Column) and item.table.lower() not in {
                    name for _, name, _ in frame.visible()
                }
                if columns is None or names is None or not plain or inside:
                    names = None
                else:
                    names += columns
                    taken |= {name.lower() for name in columns}
                continue
            inner = item.unalias()
            generator = (
                isinstance(inner, exp.Anonymous)
                and inner.name.lower().removesuffix("_outer") in _GENERATORS
            )
            if generator or isinstance(item, exp.Aliases):
                names = None
                continue
            name = item.alias or inner.output_name or inner.sql(dialect="spark")
            new = name
            while new.lower() in taken:
                new += "_right"
            taken.add(new.lower())
            if not item.alias or new != name:
                frame.select.expressions[at] = renamed(inner, new)
                frame.select.expressions[at].parent = frame.select
            if names is not None:
                names.append(new)
        return names

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
        around = node.find_ancestor(exp.Lambda)
        while around is not None:
            if parts[0].lower() in {p.name.lower() for p in around.expressions}:
                return
            around = around.find_ancestor(exp.Lambda)
        at: Frame | None = frame
        while at is not None:
            shown = len(parts) == 1 and parts[0].lower() in at.shown and clause != "on"
            if shown and clause in ("order", "sort"):
                return
            merged = at.merged.get(parts[0].lower())
            if merged is not None and parts[0].lower() not in {n for _, n, _ in at.visible()}:
                self._reach = min(self._reach, at.number)
                made = field_of(merged.copy(), parts[1:])
                output = isinstance(node.parent, exp.Select)
                node.replace(renamed(made, parts[-1]) if output else made)
                return
            found = self._find(at, parts, node)
            if found is not None:
                node.meta["at"] = found
                self._reach = min(self._reach, at.number)
                return
            if shown:
                node.meta["shown"] = at.number
                return
            if any(columns is None for _, _, columns in at.visible()):
                self._reach = min(self._reach, at.number)
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
            if real is not None and columns is not None:
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
            if first in item.names and len(parts) > 1:
                late = at >= frame.limit and not item.hidden
                why = "is joined later: its columns are not there" if late else item.hidden
                return self.source.error(f"{parts[0]!r} {why}", node)
            if item.hidden and item.columns and _match(item.columns, parts[0]):
                return self.source.error(f"{item.name!r} {item.hidden}", node)
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
        if distinct is not None and not distinct.args.get("on") and order is not None:
            self._check_distinct(frame, order)
        for key in ("limit", "offset"):
            clause = select.args.get(key)
            rows = clause.expression if clause is not None else None
            digits = rows.name if isinstance(rows, exp.Literal) and rows.name.isdigit() else ""
            if len(digits) > MOST_DIGITS or int(digits or 0) > MOST_ROWS:
                problem = f"{key.upper()} is at most {MOST_ROWS}"
                raise self.source.error_at(rf"\b{key}\b.*", problem)

    def _check_distinct(self, frame: Frame, order: exp.Order) -> None:
        given = {at_of(c) for e in frame.select.expressions for c in e.find_all(exp.Column)}
        if any(is_star(item) for item in frame.select.expressions):
            return
        for item in order.expressions:
            if any(
                at_of(c) is not None and at_of(c) not in given for c in item.find_all(exp.Column)
            ):
                problem = "ORDER BY of SELECT DISTINCT names something that is not selected"
                raise self.source.error(f"{problem}: {item.this.sql(dialect='spark')}")

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
