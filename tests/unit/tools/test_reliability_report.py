"""Figures against targets, verdicts, and the page that shows them."""

import ast
from pathlib import Path

import pytest

from tools.reliability.measurements import Figure, Measurement, Verdict, at_least, at_most, none_of, slope_per
from tools.reliability.report import render
from tools.reliability.results import Result, load_results, merge, save_results

FAULTS_FILE = Path(__file__).parents[3] / "tools" / "reliability" / "faults.py"
CATALOG = {"one": "a fault", "two": "another", "three": "a third"}


def measured(*figures: Figure, **more: str) -> Measurement:
    return Measurement("a fault", "twice", 7, figures, **more)


def result(name: str, *measurements: Measurement, is_full: bool = True) -> Result:
    return Result(name, is_full, "2026-11-17 09:00 UTC", "1.0", 7, 2, 25.0, 0.5, 90.0, measurements)


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
    sound = measured(none_of("rows lost", 0), at_most("to notice", 3.25, 30, "s"), Figure("median", 2, "s"))
    lossy, skipped = measured(none_of("rows double", 12)), measured(skipped="no compiler")
    page = render([result("two", lossy, skipped, is_full=False), result("one", sound)], CATALOG)
    rows = [line for line in page.splitlines() if line.startswith("| a fault")]
    assert rows[0] == (
        "| a fault | twice | 7 | rows lost 0; to notice 3.25 s; median 2 s "
        "| rows lost 0; to notice ≤ 30 s | met |"
    )
    assert rows[1].endswith("| rows double 12 | rows double 0 | **missed** |")
    assert "- **a fault**: rows double 12, target rows double 0" in page
    assert "- **a fault**: no compiler" in page
    assert "1 met, 1 missed, 1 not measured" in page


def test_the_head_of_the_page_says_what_was_run_in_full_as_a_sample_and_not_at_all() -> None:
    page = render([result("two", is_full=False), result("one")], CATALOG)
    assert "Measured 2026-11-17 with version 1.0 on 2 cores and 25 GB of memory, seed 7." in page
    assert "**In full**: one.\n" in page
    assert "**As a sample, with few repetitions**: two.\n" in page
    assert "**Not run**: three.\n" in page
    assert "| one | full | 2026-11-17 09:00 UTC | 1.0 | 7 | 1.5 | 0.5 of 2 |" in page


def test_results_of_several_runs_are_kept_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert load_results(file) == {}
    first = result(
        "one", measured(none_of("rows lost", 0), at_most("longest call", 3.2, 20, "s"), skipped="x")
    )
    save_results(file, [first, result("two")])
    assert load_results(file) == {"one": first, "two": result("two")}


def test_a_sample_replaces_no_full_result_unless_it_may() -> None:
    known: dict[str, Result] = {}
    full, sample = result("one"), result("one", is_full=False)
    assert merge(known, sample)
    assert merge(known, full)
    assert not merge(known, sample)
    assert known == {"one": full}
    assert merge(known, sample, may_replace_full=True)
    assert known == {"one": sample}


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
