"""Checks SQL of users: one query over the tables of the layout, made of a closed list of forms and functions.

sqlglot parses the text, each node of the tree is compared with the list, and the query is written again from
the tree. What runs is thus only what was checked: no files, other tables, settings, hints, comments or code.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Parser, Token, TokenType, exp, parse, tokenize

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.sql_queries import MAX_SQL_CHARACTERS
from kopitiam.questions.definition_errors import nearest, one_line
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.sql_growth import require_bounded

_MOST_NODES = 4_000
_MOST_DEPTH = 60
_MOST_BRACKETS = 30  # inside each other
_MOST_TYPES = 6  # brackets after the name of a type, inside each other
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_MOST_JOINED = 16  # texts that are concatenated: each of them may double the length of the one before
_SPARK = "spark"

_QUERIES = (exp.Select, exp.Union, exp.Intersect, exp.Except)
_CLAUSES = (
    *_QUERIES, exp.Subquery, exp.With, exp.CTE, exp.TableAlias, exp.From, exp.Join, exp.Where, exp.Group,
    exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Table, exp.Rollup, exp.Cube,
    exp.GroupingSets, exp.Window, exp.WindowSpec,
)  # fmt: skip
_VALUES = (
    exp.Identifier, exp.Column, exp.Star, exp.Alias, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple,
    exp.Case, exp.If, exp.Interval, exp.Var,
)  # fmt: skip
_OPERATORS = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe, exp.And, exp.Or, exp.Not,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between, exp.Is, exp.Like,
    exp.ILike, exp.Exists,
)  # fmt: skip
_FUNCTIONS = (
    exp.Sum, exp.Count, exp.CountIf, exp.Avg, exp.Min, exp.Max, exp.ArgMax, exp.ArgMin, exp.Filter,
    exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Sign,
    exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Concat,
    exp.StartsWith, exp.EndsWith, exp.Contains,
    exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfYear, exp.Week,
    exp.WeekOfYear, exp.Hour, exp.Minute, exp.Second, exp.Extract, exp.Date, exp.TsOrDsToDate,
    exp.TimestampTrunc, exp.DateTrunc, exp.DateDiff, exp.DateAdd, exp.DateSub, exp.TsOrDsAdd, exp.AddMonths,
    exp.LastDay, exp.MonthsBetween,
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue,
    exp.Cast, exp.TryCast,
)  # fmt: skip
_HIDDEN = (exp.DataType, exp.DataTypeParam)  # checked with the cast above them
_ALLOWED = frozenset((*_CLAUSES, *_VALUES, *_OPERATORS, *_FUNCTIONS, *_HIDDEN))
_TYPES = frozenset(
    exp.DataType.Type[name]
    for name in (
        "DECIMAL",
        "BIGINT",
        "INT",
        "DATE",
        "TIMESTAMPTZ",
        "TEXT",
        "BOOLEAN",
    )  # TIMESTAMPTZ: TIMESTAMP
)
# Without a column of this name, Spark takes them for functions; _metadata has the paths of files.
_NO_NAMES = frozenset({
    "user", "current_user", "session_user", "current_catalog", "current_database", "current_schema",
    "current_date", "current_timestamp", "current_time", "localtimestamp", "grouping__id", "_metadata",
})  # fmt: skip
_FUNCTION_NAMES = sorted(f.sql_names()[0].lower() for f in exp.ALL_FUNCTIONS if f in _FUNCTIONS)


@dataclass(frozen=True)
class CheckedSql:
    """A query that was checked, written anew in Spark's dialect, and the tables that it reads."""

    text: str
    tables: tuple[str, ...]  # in the order of the layout


def check_sql(text: str) -> CheckedSql:
    """Returns the query. Raises QuestionError with the reason in one line if it is not allowed."""
    try:
        return _check(_parse(text))
    except QuestionError as error:
        raise QuestionError(one_line(f"SQL: {error}")) from None


def _parse(text: str) -> exp.Expr:
    if len(text) > MAX_SQL_CHARACTERS:
        raise QuestionError(f"has more than {MAX_SQL_CHARACTERS:,} characters")
    try:
        _require_shallow(tokenize(text, dialect=_SPARK))
        statements = [statement for statement in parse(text, dialect=_SPARK) if statement is not None]
    except QuestionError:
        raise
    except RecursionError:
        raise QuestionError("is nested too deeply") from None
    except Exception as error:  # sqlglot fails in many ways on text that is not SQL
        reason = re.sub(r"\x1b\[\d*m", "", str(error)).partition("\n")[0]
        raise QuestionError(f"cannot be read: {reason}") from None
    if len(statements) != 1:
        raise QuestionError("is not one statement; write a single SELECT")
    if not isinstance(statements[0], _QUERIES):
        raise QuestionError("only a query can be run: SELECT …, or WITH … SELECT …")
    return statements[0]


def _require_shallow(tokens: Sequence[Token]) -> None:
    """Raises QuestionError for brackets nested so deep that sqlglot would take exponential time: it reads
    what follows the name of a type twice, for a type and for a function such as date(…)."""
    types: list[bool] = []  # of the open brackets: whether the name of a type is before each
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type in _OPENING:
            types.append(before is not None and before.token_type in Parser.TYPE_TOKENS)
            if len(types) > _MOST_BRACKETS or sum(types) > _MOST_TYPES:
                raise QuestionError("is nested too deeply")
        elif token.token_type in _CLOSING and types:
            types.pop()


def _check(query: exp.Expr) -> CheckedSql:
    names = {alias.lower() for cte in query.find_all(exp.CTE) if (alias := cte.alias)}
    if taken := sorted(names & set(LAYOUT)):
        raise QuestionError(f"WITH {taken[0]}: choose a name that no table has")
    tables = set()
    joined = 0
    for count, node in enumerate(query.walk()):
        if count > _MOST_NODES or _depth(node) > _MOST_DEPTH:
            raise QuestionError("is too long or nested too deeply")
        _require_allowed(node)
        if isinstance(node, exp.Table) and (table := _table_name(node)) not in names:
            tables.add(_layout_table(table))
        if isinstance(node, exp.Concat):
            joined += len(node.expressions)
        joined += 2 * isinstance(node, exp.DPipe)
    if joined > _MOST_JOINED:
        raise QuestionError(f"concatenates more than {_MOST_JOINED} texts")
    if not tables:
        raise QuestionError(f"reads no table; there are {', '.join(LAYOUT)}")
    require_bounded(query)
    text = query.sql(dialect=_SPARK, comments=False)
    return CheckedSql(text, tuple(table for table in LAYOUT if table in tables))


def _depth(node: exp.Expr) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth


def _require_allowed(node: exp.Expr) -> None:
    if isinstance(node, exp.Anonymous):
        name = node.name.lower()
        raise QuestionError(f"there is no function {name[:60]}{nearest(name, tuple(_FUNCTION_NAMES))}")
    if type(node) not in _ALLOWED:
        raise QuestionError(f"{_shown(node)} is not supported")
    if isinstance(node, exp.Identifier) and node.name.lower() in _NO_NAMES:
        raise QuestionError(f"{node.name} is not supported, as a column or as another name")
    if isinstance(node, exp.Cast) and node.to.this not in _TYPES:
        raise QuestionError(
            f"{_shown(node)}: a cast is to DECIMAL, BIGINT, INT, DATE, TIMESTAMP, STRING or BOOLEAN"
        )
    if isinstance(node, exp.Join) and node.side.upper() == "FULL":  # Spark holds all rows of a key in memory
        raise QuestionError("FULL JOIN is not supported; write a LEFT JOIN and a UNION ALL")
    if isinstance(node, exp.With) and node.args.get("recursive"):
        raise QuestionError("WITH RECURSIVE is not supported")
    if isinstance(node, exp.Select) and (extra := [key for key in _SELECT_EXTRAS if node.args.get(key)]):
        raise QuestionError(f"{extra[0].upper()} is not supported")


_SELECT_EXTRAS = (
    "hint",
    "into",
    "laterals",
    "pivots",
    "sample",
    "locks",
    "cluster",
    "distribute",
    "sort",
    "kind",
)


def _table_name(table: exp.Table) -> str:
    """Raises QuestionError for anything but a plain name: a path, another catalog, or a function."""
    extras = [key for key, value in table.args.items() if value and key not in ("this", "alias")]
    if extras or not isinstance(table.this, exp.Identifier):
        raise QuestionError(f"{_shown(table)} is not a table; there are {', '.join(LAYOUT)}")
    return table.name.lower()


def _layout_table(name: str) -> str:
    if name not in LAYOUT:
        raise QuestionError(
            f"there is no table {name[:60]}; there are {', '.join(LAYOUT)}{nearest(name, tuple(LAYOUT))}"
        )
    return name


def _shown(node: exp.Expr) -> str:
    try:
        text = node.sql(dialect=_SPARK, comments=False)
    except Exception:  # a form that sqlglot reads and cannot write
        text = type(node).__name__
    return text if len(text) <= 60 else f"{text[:59]}…"
