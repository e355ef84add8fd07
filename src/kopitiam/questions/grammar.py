"""The tokens and forms of SQL that expressions may use, and the reasons for refusing others.

Tokens are checked before sqlglot parses the text: its parser accepts far more SQL, and takes exponential time
for some of it. Translation into typed trees is in `parsing`.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest

from sqlglot import Token, TokenType, exp, tokenize

from kopitiam.contracts.errors import QuestionError
from kopitiam.questions.definition_errors import nearest
from kopitiam.questions.expressions import Aggregation, Function, Operator, Relation
from kopitiam.questions.operations import PERIODS

MOST_CHARACTERS = 2_000
MOST_LEVELS = 20  # of parentheses, cases and prefixes; sqlglot takes about twenty stack frames for each
FUNCTION_NODES: dict[type[exp.Expr], Function] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Date: "date",
    exp.TsOrDsToDate: "date",
}
OPERATORS: dict[type[exp.Expr], Operator] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
RELATIONS: dict[type[exp.Expr], Relation] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
AGGREGATES: dict[type[exp.Expr], Aggregation] = {
    exp.Sum: "sum",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
}
IN_MEASURES = (
    *OPERATORS,
    *AGGREGATES,
    exp.Avg,
    exp.Anonymous,
    exp.Column,
    exp.Literal,
    exp.Neg,
    exp.Paren,
)
FUNCTIONS: tuple[str, ...] = (*dict.fromkeys(FUNCTION_NODES.values()), *PERIODS)
MEASURE_FUNCTIONS: tuple[str, ...] = (*AGGREGATES.values(), "avg", "ratio")
ABOUT_MEASURES = "a measure is made of sum, count, min, max, avg, combined by + - * and ratio(a, b)"
ABOUT_CASTS = "casts are not supported, except date '2024-01-31' and timestamp '2024-01-31 22:59:59'"
_NO_DIVISION = "division is not supported, except the measure ratio(a, b), which is rounded once, at the end"
_NO_REMAINDER = "the remainder is not supported; use a comparison, or a function of time"
_NO_LIKE = "LIKE is not supported; use =, IN or a comparison"
_NO_WINDOW = "window functions are not supported; use rank = { by = …, within = […], top = … }"
_NO_SUBQUERY = "subqueries are not supported; use columns of the fact, or of tables that it refers to"
REFUSED: dict[TokenType, str] = {
    TokenType.SLASH: _NO_DIVISION,
    TokenType.DIV: _NO_DIVISION,
    TokenType.MOD: _NO_REMAINDER,
    TokenType.OVER: _NO_WINDOW,
    TokenType.SELECT: _NO_SUBQUERY,
    TokenType.EXISTS: _NO_SUBQUERY,
    TokenType.WITH: _NO_SUBQUERY,
    TokenType.JOIN: "joins are not supported; name attributes as table.column, such as stores.city",
    TokenType.DCOLON: ABOUT_CASTS,
    TokenType.LIKE: _NO_LIKE,
    TokenType.ILIKE: _NO_LIKE,
    TokenType.RLIKE: _NO_LIKE,
    TokenType.FILTER: "FILTER is not supported; use sum(case when … then … end)",
    TokenType.PLACEHOLDER: "placeholders are not supported",
    TokenType.COLON: "placeholders are not supported",
    TokenType.PARAMETER: "parameters such as @year are entries of their own in where",
    TokenType.SEMICOLON: "expected one expression, without ;",
    TokenType.IDENTIFIER: "expected column or table.column, without quotes",
}
_T = TokenType
_ALLOWED = frozenset(
    {
        _T.NUMBER, _T.STRING, _T.VAR, _T.DATE, _T.TIMESTAMP, _T.TRUE, _T.FALSE, _T.NULL, _T.DISTINCT,
        _T.L_PAREN, _T.R_PAREN, _T.COMMA, _T.DOT, _T.PLUS, _T.DASH, _T.STAR, _T.EQ, _T.NEQ, _T.LT, _T.LTE,
        _T.GT, _T.GTE, _T.AND, _T.OR, _T.NOT, _T.IN, _T.BETWEEN, _T.IS, _T.CASE, _T.WHEN, _T.THEN, _T.ELSE,
        _T.END,
    }
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CASTS = frozenset({"cast", "try_cast", "convert"})
_WINDOWS = frozenset({"row_number", "rank", "dense_rank", "lag", "lead", "ntile"})


def require_readable(text: str) -> None:
    """Raises QuestionError for text that is empty, too long, nested too deep, or has unsupported tokens."""
    if not text.strip():
        raise QuestionError("is empty")
    if len(text) > MOST_CHARACTERS:
        raise QuestionError(f"has {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed")
    try:
        tokens = tokenize(text)
    except Exception as error:  # sqlglot fails in many ways on text that is not SQL
        reason = str(error).partition("\n")[0]
        raise QuestionError(f"{text[:80]!r} is not an expression: {reason}") from None
    for token, following in zip_longest(tokens, tokens[1:]):
        _require_known(token, following is not None and following.token_type is TokenType.L_PAREN)
    _require_no_nested_functions(tokens)
    if (levels := _levels(tokens)) > MOST_LEVELS:
        raise QuestionError(f"is nested {levels} levels deep; at most {MOST_LEVELS} are allowed")


def _require_known(token: Token, is_called: bool) -> None:
    word = token.text.lower()
    can_be_called = token.token_type in (TokenType.VAR, TokenType.TIMESTAMP)
    if can_be_called and is_called and word not in (*FUNCTIONS, *MEASURE_FUNCTIONS):
        if word in _CASTS:
            raise QuestionError(ABOUT_CASTS)
        if word in _WINDOWS:
            raise QuestionError(_NO_WINDOW)
        known = (*FUNCTIONS, *MEASURE_FUNCTIONS)
        hint = f"there are {', '.join(known)}{nearest(word, known)}"
        raise QuestionError(f"there is no function {token.text[:60]}; {hint}")
    if token.token_type in REFUSED:
        raise QuestionError(REFUSED[token.token_type])
    is_name = token.token_type is not TokenType.VAR or _NAME.fullmatch(token.text)
    if token.token_type not in _ALLOWED or not is_name:
        raise QuestionError(f"{token.text[:60]!r} is not supported in expressions")


def _require_no_nested_functions(tokens: Sequence[Token]) -> None:
    """Refuses nested functions of time; sqlglot takes exponential time for `date(date(date(`."""
    opened: list[str] = []
    before = ""
    for token in tokens:
        if token.token_type is TokenType.L_PAREN:
            if before in FUNCTIONS and any(word in FUNCTIONS for word in opened):
                raise QuestionError(f"{before}: functions of time cannot be nested; use the column itself")
            opened.append(before)
        elif token.token_type is TokenType.R_PAREN and opened:
            opened.pop()
        before = token.text.lower()


def _levels(tokens: Sequence[Token]) -> int:
    """The nesting depth of parentheses, cases and prefixes."""
    depth = deepest = prefixes = 0
    for token in tokens:
        match token.token_type:
            case TokenType.NOT | TokenType.DASH | TokenType.PLUS:
                prefixes += 1
            case TokenType.L_PAREN | TokenType.CASE:
                depth += 1
            case TokenType.R_PAREN | TokenType.END:
                depth, prefixes = max(0, depth - 1), 0
            case _:
                prefixes = 0
        deepest = max(deepest, depth + prefixes)
    return deepest
