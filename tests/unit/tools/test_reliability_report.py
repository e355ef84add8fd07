"""Figures against targets, verdicts, and the page that shows them."""

import ast
from pathlib import Path

import pytest
from tools.reliability.measurements import Figure, Measurement, Verdict, at_least, at_most, none_of, slope_per
from tools.reliability.report import Origin, render

FAULTS_FILE = Path(__file__).parents[3] / "tools" / "reliability" / "faults.py"
ORIGIN = Origin("2026-11-17 09:00 UTC", "1.0", 2, 25.0, 1200, is_sample=False, parameters="seed 1")


def measured(*figures: Figure, **more: str) -> Measurement:
    return Measurement("a fault", "twice", 7, figures, **more)


@pytest.mark.parametrize(
    ("measurement", "verdict"),
    [
        (measured(none_of("rows lost", 0), at_most("longest call", 3.2, 20, "s")), Verdict.MET),
        (measured(none_of("rows lost", 1), at_most("longest call", 3.2, 20, "s")), Verdict.MISSED),
        (measured(at_most("longest call", 20.1, 20, "s")), Verdict.MISSED),
        (measured(at_least("starts refused", 0, 1)), Verdict.MISSED),
        (measured(Figure("median", 1e9)), Verdict.MET),
        (measured(none_of("rows lost", 0), error="broke off"), Verdict.MISSED),
        (measured(skipped="no compiler"), Verdict.NOT_MEASURED),
    ],
)
def test_a_verdict_follows_from_the_figures(measurement: Measurement, verdict: Verdict) -> None:
    assert measurement.verdict is verdict
    assert bool(measurement.missed) is (verdict is Verdict.MISSED)


def test_the_page_has_a_row_for_each_measurement_and_lists_what_was_missed() -> None:
    page = render(
        [
            measured(none_of("rows lost", 0), at_most("to notice", 3.25, 30, "s"), Figure("median", 2, "s")),
            measured(none_of("rows double", 12)),
            measured(skipped="no compiler"),
        ],
        ORIGIN,
    )
    rows = [line for line in page.splitlines() if line.startswith("| a fault")]
    assert rows[0] == (
        "| a fault | twice | 7 | rows lost 0; to notice 3.25 s; median 2 s "
        "| rows lost 0; to notice ≤ 30 s | met |"
    )
    assert rows[1].endswith("| rows double 12 | rows double 0 | **missed** |")
    assert "- **a fault**: rows double 12, target rows double 0" in page
    assert "- **a fault**: no compiler" in page
    assert "2026-11-17 09:00 UTC with version 1.0 on 2 cores and 25 GB of memory, the full set" in page
    assert "1 met, 1 missed, 1 not measured" in page


def test_a_slope_is_that_of_the_least_squares_line() -> None:
    assert slope_per([(1, 10), (2, 12), (3, 14)], step=100) == pytest.approx(200)
    assert slope_per([(1, 10), (2, 10), (3, 10)]) == 0
    assert slope_per([(1, 10)]) == 0


def test_every_fault_of_the_catalog_has_its_function() -> None:
    (catalog,) = (
        node.value
        for node in ast.parse(FAULTS_FILE.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
    )
    assert isinstance(catalog, ast.Dict)
    for value in catalog.values:
        assert isinstance(value, ast.Call)
        module, _, function = ast.literal_eval(value.args[0]).partition(":")
        body = ast.parse(FAULTS_FILE.with_name(f"{module}.py").read_text(encoding="utf-8")).body
        assert function in {node.name for node in body if isinstance(node, ast.FunctionDef)}
