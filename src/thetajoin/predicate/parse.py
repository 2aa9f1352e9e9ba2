"""SQL text to a sqlglot tree, and positions in the text for what is wrong with it.

sqlglot is imported on first use: it costs a fifth of a second that `import thetajoin` need not pay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from thetajoin.errors import ConditionError, is_text

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

# Special syntax inside the parentheses; every other function is parsed as name and arguments.
_SPECIAL = ("CAST", "EXTRACT", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST")
_EXAMPLES = {
    "condition": "a condition reads like l.a < r.b AND l.c > r.d",
    "query": "a query reads like SELECT a.x, b.y FROM a JOIN b ON a.x < b.y",
}


@dataclass(frozen=True)
class Source:
    """The text of a condition or a query, which errors point into; `label` tells several apart."""

    text: str
    label: str = ""
    what: str = "condition"

    @property
    def example(self) -> str:
        """How such a text looks."""
        return _EXAMPLES[self.what]

    def error(self, problem: str, node: exp.Expr | None = None, hint: str = "") -> ConditionError:
        """A ConditionError about the part of the text that a node covers."""
        span = _span(node, self.text) if node is not None else None
        start, end = span if span is not None else (0, len(self.text))
        return ConditionError(
            self.label + problem, position=start + 1, fragment=self.text[start:end], hint=hint
        )

    def error_at(self, pattern: str, problem: str, hint: str = "") -> ConditionError:
        """A ConditionError about the first text that a pattern matches, if no position is known."""
        found = re.search(pattern, self.text, re.IGNORECASE)
        start, end = found.span() if found else (0, len(self.text))
        return ConditionError(
            self.label + problem, position=start + 1, fragment=self.text[start:end], hint=hint
        )


def parse(source: Source) -> exp.Expr:
    """The sqlglot tree of a condition in Spark's dialect; linear in the text.

    >>> parse(Source("l.a < 'x"))
    Traceback (most recent call last):
    thetajoin.errors.ConditionError: ' is never closed at position 7: `'x`; close the quote
    """
    import sqlglot
    from sqlglot.errors import ParseError, TokenError

    if not is_text(source.text):
        raise source.error("the condition has half a character in it (a lone surrogate)")
    if not source.text.strip():
        raise ConditionError(f"{source.label}the {source.what} is empty", hint=source.example)
    try:
        trees = [tree for tree in sqlglot.parse(source.text, dialect=_dialect()) if tree]
    except TokenError:
        raise _explain_open_quote(source) from None
    except ParseError as error:
        raise _explain_parse_error(source, error) from None
    except RecursionError:
        raise source.error(f"the {source.what} is nested too deeply") from None
    if len(trees) != 1:
        hint = "combine them with AND" if source.what == "condition" else "run them one by one"
        raise source.error(f"one {source.what} is expected, not several", hint=hint)
    return trees[0]


@cache
def _dialect() -> type[Dialect]:
    """Spark's dialect with functions left as typed, '' as a quote inside a string, and ASOF JOIN's
    MATCH_CONDITION, which is still a name where only a name can be.
    """
    from sqlglot import TokenType
    from sqlglot.dialects.spark import Spark

    parser: Any = Spark.Parser
    special = {name: parser.FUNCTION_PARSERS[name] for name in _SPECIAL}
    match = TokenType.MATCH_CONDITION
    tokens = {
        "STRING_ESCAPES": ["\\", "'"],
        "KEYWORDS": {**Spark.Tokenizer.KEYWORDS, "MATCH_CONDITION": match},
    }
    parsing = {
        "FUNCTIONS": {},
        "NO_PAREN_FUNCTIONS": {},
        "FUNCTION_PARSERS": special,
        "ID_VAR_TOKENS": {*parser.ID_VAR_TOKENS, match},
    }
    parts = {
        "Tokenizer": type("Tokenizer", (Spark.Tokenizer,), tokens),
        "Parser": type("Parser", (parser,), parsing),
    }
    return type("ThetaJoin", (Spark,), parts)


def _explain_parse_error(source: Source, error: Exception) -> ConditionError:
    detail = next(iter(getattr(error, "errors", ())), None)
    if detail is None or not detail.get("line"):
        return source.error(f"this is not a SQL {source.what}", hint=source.example)
    fragment = detail["highlight"] or ""
    lines = source.text.split("\n")
    end = sum(len(line) + 1 for line in lines[: detail["line"] - 1]) + detail["col"]
    # What sqlglot says about its own tokens means nothing to the reader, who gets the text itself.
    description = re.sub(r" but got <?Token.*", "", detail["description"], flags=re.DOTALL)
    if "missing for" in description:
        problem = "an operand is missing"
    elif "Unexpected token" in description:
        problem = "unexpected text"
    elif description.startswith("Expecting"):
        problem = f"{description.removeprefix('Expecting').strip()} is missing"
    else:
        problem = description[0].lower() + description[1:]
    position = max(1, end - len(fragment) + 1)
    return ConditionError(
        source.label + problem, position=position, fragment=fragment, hint=source.example
    )


def _explain_open_quote(source: Source) -> ConditionError:
    """The quote that never closes: the first one left after dropping whole strings and names."""
    whole = re.compile(r"'(?:\\.|''|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:``|[^`])*`", re.DOTALL)
    blanked = whole.sub(lambda match: " " * len(match[0]), source.text)
    found = re.search(r"['\"`]|/\*", blanked)
    start = found.start() if found else 0
    quote = found[0] if found else source.text[:1]
    return ConditionError(
        f"{source.label}{quote} is never closed",
        position=start + 1,
        fragment=source.text[start:],
        hint="close the quote",
    )


def _span(node: exp.Expr, text: str) -> tuple[int, int] | None:
    """First and past-last character of a node, closing parentheses it opened included."""
    metas = [part.meta for part in node.walk() if "start" in part.meta]
    if not metas:
        return _span(node.parent, text) if node.parent is not None else None
    start = min(meta["start"] for meta in metas)
    end = max(meta["end"] for meta in metas) + 1
    while text.count("(", start, end) > text.count(")", start, end):
        closing = text.find(")", end)
        if closing < 0:
            break
        end = closing + 1
    return start, end
