"""The report: all answers of a run on one page that needs nothing else, for the screen and for paper.

The same answers give the same bytes: nothing here looks at a clock.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import Rejected
from kopitiam.results.charts import CHART_OF_ANSWER, chart_config, chart_rows, chart_spec
from kopitiam.results.charts.distribution import Distribution, distribution
from kopitiam.results.charts.rows import Row, bin_rows
from kopitiam.results.charts.svg import still_chart
from kopitiam.results.reading import Answers
from kopitiam.results.report_tables import Cells, customers, payment_values, products
from kopitiam.results.ringgit import ringgit
from kopitiam.results.summary import Summary
from kopitiam.results.text import shorten

EXAMPLES = 20
_MAX_CELL = 80  # characters; the whole text shows when one points at it
_FOLDER = Path(__file__).parent
_COLOURS = {"text": ("text", "color"), "grid": ("axis", "gridColor")}


@dataclass(frozen=True)
class Section:
    """One answer: what was asked, its picture, its rows."""

    answer: str
    title: str
    asked: str
    chart: Markup | None
    drawn: int  # rows of the answer that the chart shows
    rows: int
    table: Cells

    @property
    def number(self) -> str:
        return f"Q{self.answer.replace('_', '.')}"

    @property
    def file(self) -> str:
        return ANSWERS[self.answer].csv_name


def report(answers: Answers, summary: Summary, label: str = "", rejected: Sequence[Rejected] = ()) -> str:
    """`rejected` are examples; `label` is the name that the run was given."""
    sales = distribution(answers)
    return _template().render(
        label=label,
        summary=summary,
        sales=sales,
        sections=list(_sections(answers, summary.questions, sales)),
        rejected=rejected,
        style=Markup(_style()),  # noqa: S704 - ours
        policy=content_policy(),
        version=version("kopitiam"),
    )


def content_policy() -> str:
    """Nothing is loaded and nothing runs; only the page's own style sheet counts."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _sections(answers: Answers, asked: Questions, sales: Distribution) -> Iterator[Section]:
    years = _span(asked.first_year, asked.last_year)
    hours = f"from {asked.opening} to {asked.closing}, both included"
    about = {
        "1": f"Purchases of at least {ringgit(asked.min_amount)} in {years}, {hours}.",
        "2_1": f"The product sold most in each month of {years}.",
        "2_2": f"The product that earned most in each month of {years}.",
        "3": f"What was paid at each store in each half-year of {years}, {hours}.",
        "4": f"The {asked.top} customers with most purchases at each store in {years}, at any hour.",
    }
    tables = {
        "1": _largest(sales),
        "2_1": products(answers, "2_1"),
        "2_2": products(answers, "2_2"),
        "3": payment_values(answers),
        "4": customers(answers),
    }
    for name, answer in ANSWERS.items():
        count = answers.rows(name)
        rows = bin_rows(sales.bins) if name == "1" else chart_rows(CHART_OF_ANSWER[name], answers)
        drawn = count if name == "1" else len(rows)  # every purchase is in a bin
        yield Section(name, answer.title, about[name], _chart(name, rows), drawn, count, tables[name])


def _chart(answer: str, rows: list[Row]) -> Markup | None:
    # The picture escapes what it is given.
    return Markup(still_chart(chart_spec(CHART_OF_ANSWER[answer]), rows)) if rows else None  # noqa: S704


def _largest(sales: Distribution) -> Cells:
    rows = [[identity, ringgit(amount)] for identity, amount in sales.largest_rows]
    return Cells(["transaction", "amount"], rows, numbers={1})


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ringgit": ringgit,
        "count": "{:,}".format,
        "shorten": partial(shorten, most=_MAX_CELL),
    }
    return environment.get_template("report.html.jinja")


@cache
def _style() -> str:
    """With the colours of the charts, by day and by night; paper is always day."""
    day, night = (_variables(chart_config(theme)) for theme in ("light", "dark"))
    sheet = (_FOLDER / "report.css").read_text(encoding="utf-8")
    return sheet.replace("/* day */", day).replace("/* night */", night)


def _variables(config: Mapping[str, Any]) -> str:
    colours = {name: config[group][key] for name, (group, key) in _COLOURS.items()}
    colours |= {f"c{number}": colour for number, colour in enumerate(config["range"]["category"])}
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
