"""The page of the benchmarks: tables, plots, and parts that are measured at different times."""

from datetime import UTC, datetime

import vl_convert

from tools.benchmarks.page import merged, page, plots

MONDAY, TUESDAY = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)


def standing(key: str, name: str, seconds: float, ratio: float) -> dict:
    return {
        "key": key,
        "name": name,
        "median_seconds": seconds,
        "min_seconds": seconds,
        "max_seconds": seconds,
        "median_cpu_seconds": 2 * seconds,
        "ratio": ratio,
        "peak_bytes": 5_000_000,
    }


def result(scale: float, **parts: dict) -> dict:
    comparison = {
        "reference": "DuckDB",
        "rounds": 3,
        "standings": [
            standing("duckdb", "DuckDB", 10.0, 1.0),
            standing("service", "kopi submit, warm", 15.0, 1.5),
        ],
    }
    empty = dict.fromkeys(("wild", "sample", "streaming", "clients", "ingest"))
    return {"scale": scale, "comparison": comparison, "limits": []} | empty | parts


CLIENTS = {"rows_of_a_client": 1000, "crowds": [{"clients": 4, "rows_per_second": 2000.0, "ratio": 1.75}]}
STREAMING = {
    "end_to_answers": {"median_seconds": 2.0, "share": 0.08, "ratio": 1.4},
    "breakdown": {"batches": 6, "cpu_seconds": {"client": 9.0, "Java": 11.0}},
}


def test_the_page_has_a_row_for_each_contender_largest_scale_first():
    results = {"0.1": merged({}, result(0.1), MONDAY), "1": merged({}, result(1.0), MONDAY)}

    text = page(results)

    assert text.index("## Scale 1\n") < text.index("## Scale 0.1")
    assert "| kopi submit, warm | 15.00 | 15.00 to 15.00 | 1.50 | 30.00 | 5 |" in text


def test_a_later_run_keeps_the_parts_that_it_did_not_measure():
    first = merged({}, result(1.0, clients=CLIENTS), MONDAY)
    second = merged(first, result(1.0, streaming=STREAMING), TUESDAY)

    text = page({"1": second})

    assert second["dates"]["clients"] == "2026-03-02"
    assert second["dates"]["comparison"] == "2026-03-03"
    assert "| 4 | 2,000 | 1.75 |" in text
    assert "8% of the whole submit, 1.40 times as long as at scale 0.1" in text
    assert "| all | 20.0 |" in text


def test_plots_are_valid_vega_lite():
    drawn = plots({"1": merged({}, result(1.0, streaming=STREAMING), MONDAY)})

    assert set(drawn) == {"seconds", "cpu-1"}
    for specification in drawn.values():
        svg = vl_convert.vegalite_to_svg(specification, allowed_base_urls=[])
        assert svg.startswith("<svg")
