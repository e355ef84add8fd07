"""The charts of the answers, one for each: a Vega-Lite file, and the rows that go into it.

The dashboard draws them with the library in `vendor`, the report as still pictures (`svg`); both read the
same files, so that a chart is designed once.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from kopitiam.results.charts import rows
from kopitiam.results.reading import Answers

FOLDER = Path(__file__).parent
Theme = Literal["light", "dark"]


@dataclass(frozen=True)
class Chart:
    name: str  # of its file
    answer: str
    rows: Callable[[Answers], list[rows.Row]]


CHARTS: dict[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart("q1", "1", rows.of_amounts),
        Chart("q2_best", "2_1", rows.of_best_sellers),
        Chart("q2_profit", "2_2", rows.of_most_profitable),
        Chart("q3", "3", rows.of_payment_values),
        Chart("q4", "4", rows.of_customers),
    )
}
CHART_OF_ANSWER = {chart.answer: chart.name for chart in CHARTS.values()}


def chart_spec(question: str) -> dict[str, Any]:
    """Vega-Lite; its data is a set named `rows`."""
    return _read(f"{CHARTS[question].name}.vl.json")


def chart_rows(question: str, answers: Answers) -> list[rows.Row]:
    """What `rows` of the chart holds: as JSON, numbers for the axes and text for people."""
    return CHARTS[question].rows(answers)


def chart_config(theme: Theme) -> dict[str, Any]:
    """Vega-Lite's `config`: colours that stay apart for colour-blind people, by day and by night."""
    config: dict[str, Any] = _read("themes.json")[theme]
    return config


@cache
def _text(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


def _read(file: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(_text(file))
    return read
