"""Mutants: a source file with one small mistake in the body of a function.

Only mistakes that a person could make and a reader could miss: a comparison that is off by one or
turned round, a side that is the other, a statement left out. What only words a message is left
alone, and so are assertions and annotations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from types import CodeType, FunctionType
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_PAIRS = (
    ("min", "max"),
    ("any", "all"),
    ("minimum", "maximum"),
    ("zeros", "ones"),
    ("INT64_MIN", "INT64_MAX"),
)
NAMES = dict(_PAIRS) | {b: a for a, b in _PAIRS}
WORDS = {"l": "r", "r": "l", "left": "right", "right": "left"}
# What is inside them says something to a person, or nothing at run time.
_SILENT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.FunctionDef, ast.ClassDef)
_BLOCKS = (ast.If, ast.While, ast.For, ast.With, ast.Try, ast.Match)
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """One mistake: the text of a span of a file replaced by another."""

    path: str
    function: str
    line: int
    # The lines of the statement it is in, of which a test must run one to notice.
    span: tuple[int, int]
    start: int
    end: int
    text: str
    before: str
    after: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What stays the same while other lines of the file change."""
        return self.path, self.function, self.before, self.after

    @property
    def rank(self) -> str:
        """A number by which mutants are drawn, the same whatever other mutants there are."""
        return blake2b("\0".join(self.identity).encode()).hexdigest()

    def source(self, original: str) -> str:
        """The file with the mistake in it."""
        return original[: self.start] + self.text + original[self.end :]


def mutants_of(path: str, source: str, leave: frozenset[str] = frozenset()) -> list[Mutant]:
    """Every mutant of a file's functions but those named in `leave`.

    >>> [m.after for m in mutants_of("x.py", "def f(a):\\n    return a < 2")]
    ['return (a <= 2)', 'return a < 3']
    """
    tree = ast.parse(source)
    offsets = _offsets(source)
    found = []
    for name, function in _functions(tree):
        if name.rpartition(".")[2] in leave:
            continue
        for statement in _statements(function.body):
            for node, text in _edits(statement):
                found.append(_mutant(path, name, source, offsets, statement, node, text))
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[str, Functions]]:
    """The functions of a module and the methods of its classes, not those inside of others."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inner:
            if isinstance(one, Functions):
                yield prefix + one.name, one


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements of a body, those inside of others too."""
    for statement in body:
        yield statement
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from _statements([inner])
            elif isinstance(inner, ast.match_case | ast.ExceptHandler):
                yield from _statements(inner.body)


def _edits(statement: ast.stmt) -> Iterator[tuple[ast.AST, str]]:
    """What can be mistaken in a statement itself, not in the statements it holds."""
    if isinstance(statement, _SILENT):
        return
    if removable(statement):
        yield statement, "pass"
    for node in (statement, *_expressions(statement)):
        for test in _tests(node):
            yield from ((test, _written(opposite)) for opposite in _opposite(test))
        for text in _variants(node):
            yield node, text


def removable(statement: ast.stmt) -> bool:
    """Whether a statement can be left out and the names that follow still mean something."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        return all(isinstance(t, ast.Attribute | ast.Subscript) for t in statement.targets)
    return isinstance(statement, ast.AugAssign | ast.Delete | ast.Continue | ast.Break)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    children = ast.iter_child_nodes(statement)
    waiting = [n for n in children if isinstance(n, ast.expr | ast.withitem)]
    if isinstance(statement, ast.AnnAssign):
        waiting = [] if statement.value is None else [statement.value]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _SILENT) or (isinstance(node, ast.keyword) and node.arg == "strict"):
            continue
        yield node
        waiting += ast.iter_child_nodes(node)  # type: ignore[arg-type]


def _tests(node: ast.AST) -> list[ast.expr]:
    """The conditions that a statement or an expression turns on."""
    if isinstance(node, ast.comprehension):
        return node.ifs
    return [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else []


def _variants(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for at, op in enumerate(ops):
                turned = [*ops[:at], COMPARISONS[type(op)](), *ops[at + 1 :]]
                yield _written(ast.Compare(left, turned, others))
        case ast.BoolOp(op=op, values=values):
            yield _written(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield _written(ast.BinOp(left, OPERATORS[type(op)](), right))
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield _written(operand)
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Constant(value=str(value)) if value in WORDS:
            yield repr(WORDS[value])
        case ast.Name(id=name) | ast.Attribute(attr=name) if name in NAMES:
            yield _renamed(node)


def _opposite(test: ast.expr) -> Iterator[ast.expr]:
    """The condition turned round, where no other mistake does that already."""
    exact = isinstance(test, ast.Compare) and not isinstance(
        test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE
    )
    if not exact and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield ast.UnaryOp(ast.Not(), test)


def _renamed(node: ast.Name | ast.Attribute) -> str:
    if isinstance(node, ast.Name):
        return NAMES[node.id]
    return ast.unparse(ast.Attribute(node.value, NAMES[node.attr], node.ctx))


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"


def _offsets(source: str) -> list[int]:
    """Where each line begins."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _mutant(
    path: str,
    function: str,
    source: str,
    offsets: list[int],
    statement: ast.stmt,
    node: Any,
    text: str,
) -> Mutant:
    lines = source.splitlines()

    def place(line: int, column: int) -> int:
        # Columns are counted in bytes.
        return offsets[line - 1] + len(lines[line - 1].encode()[:column].decode())

    start = place(node.lineno, node.col_offset)
    end = place(node.end_lineno, node.end_col_offset)
    first, last = offsets[node.lineno - 1], offsets[node.end_lineno]
    shown = source[first:start] + text + source[end:last]
    return Mutant(
        path,
        function,
        node.lineno,
        _span(statement),
        start,
        end,
        text,
        _one_line(source[first:last]),
        _one_line(shown),
    )


def _span(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement without those of the statements it holds."""
    inner = [s for s in ast.walk(statement) if isinstance(s, ast.stmt) and s is not statement]
    end = statement.end_lineno or statement.lineno
    if isinstance(statement, _BLOCKS) and inner:
        end = max(statement.lineno, min(s.lineno for s in inner) - 1)
    return statement.lineno, end


def _one_line(text: str) -> str:
    return " ".join(text.split())


def code_in(module: CodeType, function: str) -> CodeType:
    """The code of a function in a compiled module."""
    waiting, found = [module], None
    while waiting:
        code = waiting.pop(0)
        if code.co_qualname == function:
            found = code  # the last of several, which an overloaded function's own is
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    if found is None:
        raise LookupError(function)
    return found


def function_in(module: Any, function: str) -> FunctionType:
    """The function itself behind what a class makes of it."""
    owner = module
    *classes, name = function.split(".")
    for part in classes:
        owner = getattr(owner, part)
    found = vars(owner)[name]
    for behind in ("__func__", "fget", "func", "__wrapped__"):
        found = getattr(found, behind, None) or found
    assert isinstance(found, FunctionType), function
    return found
