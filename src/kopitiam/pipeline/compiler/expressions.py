"""Expressions of questions as Spark SQL.

A value has two forms. As it is *read*, it has the type of its column: money is BIGINT in ten-thousandths,
instants are TIMESTAMP, dates DATE. As it is *kept* in a partial, everything but text is BIGINT, and periods
such as `2024-01` are numbers: Spark groups numbers faster than texts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import assert_never, cast

from kopitiam.contracts.money import UNITS
from kopitiam.contracts.parameters import SECONDS_PER_DAY, Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.expressions import (
    Aggregate,
    Arithmetic,
    AsMoney,
    Call,
    Case,
    ColumnRef,
    Comparison,
    Constant,
    Expression,
    In,
    IsNull,
    Junction,
    Negation,
    Ratio,
)

WIDE = "DECIMAL(38, 0)"  # for sums and products that may not fit into 64 bits
_ADDABLE = (Kind.COUNT, Kind.MONEY)
_MONTHS = 12
_MOST_SEARCHED = 60  # periods; the code of a longer search is too large for Java's compiler
_MONTHS_OF_PERIOD = {"year": 12, "year_half": 6, "year_quarter": 3, "year_month": 1}
_PERIODS: Mapping[str, tuple[str, ...]] = {  # a text from its number: format, and the parts of the number
    "year_month": ("%04d-%02d", "{0} div 12", "pmod({0}, 12) + 1"),
    "year_half": ("%04d-H%d", "{0} div 2", "pmod({0}, 2) + 1"),
    "year_quarter": ("%04d-Q%d", "{0} div 4", "pmod({0}, 4) + 1"),
    "iso_week": ("%04d-W%02d", "{0} div 100", "pmod({0}, 100)"),
}


@dataclass(frozen=True)
class SqlCompiler:
    """Compiles expressions over rows of one input.

    `names` returns the SQL name of a column or an aggregate. `years` are the years of all instants named
    `created_at`, if they are known, which makes periods faster to compute. With `is_wide`, arithmetic is done
    in 38 digits.
    """

    names: Callable[[ColumnRef | Aggregate], str]
    years: Parameters | None = None
    is_wide: bool = False
    known: Mapping[Expression, str] = field(default_factory=dict)  # SQL of parts that are computed already

    def read(self, expression: Expression) -> str:  # noqa: PLR0911, PLR0912 - one case for each form
        """The value in the type of its kind."""
        if expression in self.known:
            return self.known[expression]
        match expression:
            case ColumnRef(kind=kind) | Aggregate(kind=kind):
                name = self.names(expression)
                return f"CAST({name} AS {WIDE})" if self.is_wide and kind in _ADDABLE else name
            case Constant():
                return constant(expression)
            case AsMoney(argument):
                return f"({self.read(argument)} * {UNITS}L)"
            case Arithmetic(operator, left, right):
                return f"({self.read(left)} {operator} {self.read(right)})"
            case Comparison():
                return self._comparison(expression)
            case Junction(word, left, right):
                return f"({self.read(left)} {word.upper()} {self.read(right)})"
            case Negation(argument):
                return f"(NOT {self.read(argument)})"
            case IsNull(argument):
                return f"({self.read(argument)} IS NULL)"
            case In(argument, values):
                return f"({self.read(argument)} IN ({', '.join(map(constant, values))}))"
            case Case(branches, default):
                whens = " ".join(f"WHEN {self.read(if_)} THEN {self.read(then)}" for if_, then in branches)
                return f"(CASE {whens} ELSE {self.read(default) if default else 'NULL'} END)"
            case Call():
                return self._call(expression)
            case Ratio(left, right):
                return self._ratio(left, right)
            case _:
                assert_never(expression)

    def keep(self, expression: Expression) -> str:
        """The value as a partial keeps it."""
        if isinstance(expression, Call) and expression.function in _PERIODS:
            return self._period(expression)
        value = self.read(expression)
        match expression.kind:
            case Kind.TEXT:
                return value
            case Kind.DATE:
                return f"CAST(unix_date({value}) AS BIGINT)"
            case Kind.INSTANT:
                return f"unix_micros({value})"
            case Kind.BOOLEAN:
                return f"CAST({value} AS BIGINT)"
            case _:
                return f"CAST({value} AS BIGINT)"

    def _call(self, call: Call) -> str:  # noqa: PLR0911
        """Functions of an instant are computed from its seconds, which is faster than by the calendar."""
        time, is_instant = self.read(call.argument), call.argument.kind is Kind.INSTANT
        seconds = f"unix_seconds({time})"
        days = f"(({seconds} - pmod({seconds}, {SECONDS_PER_DAY}L)) div {SECONDS_PER_DAY}L)"
        if not is_instant:
            days = f"CAST(unix_date({time}) AS BIGINT)"
        match call.function:
            case "hour":
                return f"(pmod({seconds}, {SECONDS_PER_DAY}L) div 3600L)"
            case "minute":
                return f"(pmod({seconds}, 3600L) div 60L)"
            case "dayofweek":
                return f"(pmod({days} + 4L, 7L) + 1L)"  # 1970-01-01 was a Thursday; Sunday is 1
            case "date":
                return f"CAST({time} AS DATE)"
            case "day":
                return f"CAST(day({time}) AS BIGINT)"
            case "year":
                return self._period(call)
            case "quarter":
                return f"(pmod({self._months(call.argument)}, {_MONTHS}L) div 3L + 1L)"
            case "month":
                return f"(pmod({self._months(call.argument)}, {_MONTHS}L) + 1L)"
            case _:
                return period_text(call.function, self._period(call))

    def _period(self, call: Call) -> str:
        """The number of the period since year 0, or year and week for `iso_week`."""
        if call.function == "iso_week":
            time = self.read(call.argument)
            week = f"extract(YEAROFWEEK FROM {time}) * 100 + weekofyear({time})"
            return f"CAST({week} AS BIGINT)"
        return self._months(call.argument, _MONTHS_OF_PERIOD[call.function])

    def _months(self, time: Expression, months: int = 1) -> str:
        """The number of the period of `months` months since year 0. A search among few bounds takes a third
        less time than the calendar."""
        value = self.read(time)
        if self.years is not None and isinstance(time, ColumnRef) and time.name == "created_at":
            years = (self.years.first_year, self.years.last_year + 1)
            first, end = (year * _MONTHS // months for year in years)
            if end - first <= _MOST_SEARCHED:
                return _search(value, first, end, months)
        return f"CAST((year({value}) * {_MONTHS} + month({value}) - 1) div {months} AS BIGINT)"

    def _ratio(self, left: Expression, right: Expression) -> str:
        """In ten-thousandths, rounded half away from zero by integer arithmetic; NULL if the right side is
        0."""
        above, below = (f"CAST({self.read(side)} AS {WIDE})" for side in (left, right))
        scale = UNITS
        if left.kind is not right.kind:  # one of them is in ten-thousandths already
            scale = 1 if left.kind is Kind.MONEY else UNITS * UNITS
        unit = f"nullif(abs({below}), 0)"
        doubled = f"(2 * abs({above}) * {scale} + {unit})"
        whole = f"CAST(({doubled} - {doubled} % (2 * {unit})) / (2 * {unit}) AS {WIDE})"
        return f"({whole} * CAST(sign({above}) * sign({below}) AS INT))"

    def _comparison(self, comparison: Comparison) -> str:  # noqa: PLR0911
        bounds = _bounds(comparison)
        if bounds is None:
            relation = comparison.relation
            return f"({self.read(comparison.left)} {relation} {self.read(comparison.right)})"
        value = self.read(cast(Call, comparison.left).argument)
        begin, end = map(constant, bounds)
        match comparison.relation:
            case "=":
                return f"({value} >= {begin} AND {value} < {end})"
            case "<>":
                return f"({value} < {begin} OR {value} >= {end})"
            case "<":
                return f"({value} < {begin})"
            case "<=":
                return f"({value} < {end})"
            case ">":
                return f"({value} >= {end})"
            case ">=":
                return f"({value} >= {begin})"


def decoded(expression: Expression, kept: str) -> str:
    """The value of an expression, from the column in which a partial keeps it."""
    if isinstance(expression, Call) and expression.function in _PERIODS:
        return period_text(expression.function, kept)
    match expression.kind:
        case Kind.DATE:
            return f"date_from_unix_date(CAST({kept} AS INT))"
        case Kind.INSTANT:
            return f"timestamp_micros({kept})"
        case Kind.BOOLEAN:
            return f"CAST({kept} AS BOOLEAN)"
        case _:
            return kept


def period_text(function: str, number: str) -> str:
    form, *parts = _PERIODS[function]
    filled = ", ".join(part.format(f"({number})") for part in parts)
    return f"CASE WHEN {number} IS NOT NULL THEN format_string('{form}', {filled}) END"


def constant(value: Constant) -> str:
    match value.kind, value.value:
        case Kind.BOOLEAN, bool(truth):
            return str(truth).upper()
        case _, int(number):
            return f"{number}L" if number >= 0 else f"({number}L)"
        case Kind.INSTANT, datetime() as instant:
            return f"TIMESTAMP '{instant.isoformat(' ')}'"
        case Kind.DATE, date() as day:
            return f"DATE '{day.isoformat()}'"
    text = cast(str, value.value).encode().hex()  # hexadecimal needs no quoting
    return f"CAST(X'{text}' AS STRING)"


def _search(value: str, first: int, end: int, months: int) -> str:
    if end - first == 1:
        return f"{first}L"
    middle = (first + end) // 2
    year, month = divmod(middle * months, _MONTHS)
    earlier, later = _search(value, first, middle, months), _search(value, middle, end, months)
    return f"if({value} < TIMESTAMP '{year:04}-{month + 1:02}-01', {earlier}, {later})"


def _bounds(comparison: Comparison) -> tuple[Constant, Constant] | None:
    """If a year or a date is compared with a constant: its first instant, and the first one after it.

    Parquet statistics skip row groups for a range of instants, but not for a function of them.
    """
    call, value = comparison.left, comparison.right
    if not (isinstance(call, Call) and isinstance(value, Constant)):
        return None
    if call.function not in ("year", "date") or not isinstance(call.argument, ColumnRef):
        return None
    try:
        if call.function == "year":
            year = cast(int, value.value)
            begin, end = datetime(year, 1, 1), datetime(year + 1, 1, 1)
        else:
            day = cast(date, value.value)
            begin = datetime(day.year, day.month, day.day)
            end = datetime.fromordinal(day.toordinal() + 1)
    except ValueError:  # outside the years 1 to 9999
        return None
    if call.argument.kind is Kind.DATE:
        return Constant(begin.date(), Kind.DATE), Constant(end.date(), Kind.DATE)
    return Constant(begin, Kind.INSTANT), Constant(end, Kind.INSTANT)
