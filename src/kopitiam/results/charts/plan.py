"""Plans the chart of an answer: the one that its definition names, or one that suits its columns.

Without a `chart` in the definition:
- an answer that lists rows: a histogram of the first shown column with figures;
- one row of measures (no keys): no chart, since the table shows everything;
- otherwise `y` is the first shown measure with figures, and `x` is the first key that is ordered (a time, a
  number), or else the first key. With exactly two keys the other one is the colour. The mark is a line if `x`
  is a point in time and nothing is ranked, else bars.
An axis shows the key, or the first shown attribute of the key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definition_errors import DefinitionError
from kopitiam.questions.definitions import RANK, AnswerColumn, Chart, Mark, Named, Question
from kopitiam.questions.expressions import Aggregate, Arithmetic, AsMoney, Call, Expression, Function
from kopitiam.results.cells import FIGURES

_TIMES: frozenset[Function] = frozenset(
    {"date", "year_month", "year_half", "year_quarter", "iso_week", "year"}
)
_MOST_BESIDE = 2  # further columns that are written beside a bar


class NotDrawable(Exception):
    """The chart that a definition names cannot be drawn; the message says why."""


@dataclass(frozen=True)
class Axis:
    """A column as a chart uses it. `identity` distinguishes values: two stores may share a name."""

    column: AnswerColumn
    identity: str
    function: Function | None = None  # of time, if the column is one

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def kind(self) -> Kind:
        return self.column.kind

    @property
    def is_figure(self) -> bool:
        return self.kind in FIGURES

    @property
    def is_time(self) -> bool:
        return self.kind in {Kind.DATE, Kind.INSTANT} or self.function in _TIMES

    @property
    def is_ordered(self) -> bool:
        return self.is_time or self.is_figure

    @property
    def title(self) -> str:
        return f"{self.name} (RM)" if self.kind is Kind.MONEY else self.name


@dataclass(frozen=True)
class ChartPlan:
    """The chart of one question: its mark and its axes."""

    question: Question
    mark: Mark
    x: Axis
    y: Axis  # of a histogram the same as `x`
    color: Axis | None = None

    @property
    def figures(self) -> Axis:
        """The axis that is drawn to scale: the colour of a heat map, else `y`."""
        return self.color if self.mark == "rect" and self.color is not None else self.y

    @property
    def is_ranked(self) -> bool:
        return self.question.rank is not None

    @cached_property
    def is_whole(self) -> bool:
        """Whether the figures of one `x` add up to a whole, so that they may be stacked."""
        measures = {measure.name: measure.expression for measure in self.question.measures}
        measure = measures.get(self.figures.name)
        return not self.is_ranked and measure is not None and _adds_up(measure)

    @cached_property
    def is_one_row_each(self) -> bool:
        """Whether each `x` has at most one row."""
        if self.question.lists_rows:
            return False
        rank = self.question.rank
        keys = {key.name for key in self.question.keys}
        apart = set(rank.within) if rank is not None and rank.top == 1 else keys
        return apart <= {self.x.identity}

    @cached_property
    def beside(self) -> tuple[Axis, ...]:
        """Shown columns that have no axis; they are written beside a bar."""
        used = {axis.name for axis in (self.x, self.y, self.color) if axis is not None}
        identities = {self.x.identity, self.color.identity if self.color else ""}
        columns = self.question.columns_by_name
        shown = [columns[name] for name in self.question.shown if name not in used and name in columns]
        axes = [axis_of(self.question, column) for column in shown if column.role in {"key", "attribute"}]
        return tuple(axis for axis in axes if axis.identity not in identities)[:_MOST_BESIDE]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the answer that the chart is drawn from."""
        axes = [axis for axis in (self.x, self.y, self.color, *self.beside) if axis is not None]
        names = [name for axis in axes for name in (axis.name, axis.identity)]
        if RANK in self.question.columns_by_name:
            names.append(RANK)
        return tuple(dict.fromkeys(names))


def require_drawable(question: Question) -> None:
    """Raises DefinitionError for a chart in the definition that cannot be drawn."""
    try:
        plan_chart(question)
    except NotDrawable as error:
        raise DefinitionError("chart", f"{error}; name other columns, or leave chart out") from None


def plan_chart(question: Question) -> ChartPlan | None:
    """The chart of a question; None if no chart suits it.

    Raises NotDrawable for a chart in the definition that cannot be drawn.
    """
    chart = question.chart or _chosen(question)
    if chart is None:
        return None
    columns = question.columns_by_name
    x = axis_of(question, columns[chart.x])
    if chart.mark == "histogram":
        _require_figures(x)
        return ChartPlan(question, chart.mark, x, x)
    y = axis_of(question, columns[chart.y])
    color = axis_of(question, columns[chart.color]) if chart.color else None
    if chart.mark == "rect":
        if color is None:
            raise NotDrawable("a heat map needs a column of figures as color")
        _require_figures(color)
    else:
        _require_figures(y)
    return ChartPlan(question, chart.mark, x, y, color)


def axis_of(question: Question, column: AnswerColumn) -> Axis:
    """The axis that shows a column of the answer."""
    if column.attribute is not None:
        return Axis(column, question.identity(column.attribute))
    named = question.named.get(column.name)
    call = named.expression if named is not None and isinstance(named.expression, Call) else None
    return Axis(column, column.name, call.function if call else None)


def _require_figures(axis: Axis) -> None:
    if not axis.is_figure:
        raise NotDrawable(f"{axis.name} has no figures")


def _chosen(question: Question) -> Chart | None:
    columns = question.columns_by_name
    shown = [columns[name] for name in question.shown if name in columns]
    if question.lists_rows:
        figures = [column for column in shown if column.kind in FIGURES]
        return Chart("histogram", figures[0].name, "count") if figures else None
    measures = [*shown, *question.answer_columns]
    y = next((column for column in measures if column.role == "measure" and column.kind in FIGURES), None)
    axes = [_axis_of_key(question, key, shown) for key in question.keys]
    if y is None or not axes:
        return None
    x = next((axis for axis in axes if axis.is_ordered), axes[0])
    others = [axis for axis in axes if axis is not x]
    mark: Mark = "line" if x.is_time and question.rank is None and len(others) <= 1 else "bar"
    return Chart(mark, x.name, y.name, others[0].name if len(others) == 1 else "")


def _axis_of_key(question: Question, key: Named, shown: Iterable[AnswerColumn]) -> Axis:
    axes = [axis_of(question, column) for column in shown if column.attribute is not None]
    own = axis_of(question, question.columns_by_name[key.name])
    return next((axis for axis in axes if axis.identity == key.name), own)


def _adds_up(expression: Expression) -> bool:
    match expression:
        case Aggregate(aggregation="sum" | "count"):
            return True
        case AsMoney(argument=argument):
            return _adds_up(argument)
        case Arithmetic(operator="+" | "-", left=left, right=right):
            return _adds_up(left) and _adds_up(right)
        case _:
            return False
