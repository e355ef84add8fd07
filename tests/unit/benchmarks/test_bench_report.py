"""What a person reads after a benchmark."""

from io import StringIO

from rich.console import Console

from tools.benchmarks.clients import summarize
from tools.benchmarks.compare import Comparison, Standing
from tools.benchmarks.limits import Limit
from tools.benchmarks.report import breakdown_table, clients_table, ingest_table, limits_table, render


def text_of(renderable) -> str:
    console = Console(file=StringIO(), width=160)
    console.print(renderable)
    return console.file.getvalue()


def result_of(*standings: Standing, limits: tuple[Limit, ...] = ()) -> dict:
    comparison = Comparison("sales", 3, "DuckDB", standings)
    return {
        "scale": 0.1,
        "comparison": comparison.to_json(),
        **dict.fromkeys(("sample", "wild", "streaming", "clients", "months", "ingest")),
        "limits": [limit.to_json() for limit in limits],
    }


def test_a_standing_shows_median_spread_ratio_cpu_and_peak():
    standing = Standing("polars", "Polars", (1.0, 4.0, 2.0), (3.0, 5.0, 4.0), 250_000_000, 0.8, agrees=True)

    row = next(line for line in text_of(render(result_of(standing))).splitlines() if "Polars" in line)

    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "Polars",
        "2.00",
        "1.00–4.00",
        "0.80",
        "4.00",
        "250",
        "yes",
    ]


def test_the_files_that_differ_are_named():
    standing = Standing(
        "pandas", "pandas", (1.0,), (1.0,), 1, 1.0, agrees=False, differing_files=("results_query_4.csv",)
    )

    assert "pandas differs from DuckDB in results_query_4.csv" in text_of(render(result_of(standing)))


def test_a_failed_contender_shows_its_error():
    standing = Standing("pandas", "pandas", (), (), 0, None, None, error="exit code 1\nMemoryError")

    shown = text_of(render(result_of(standing)))

    assert "failed" in shown
    assert "MemoryError" in shown


def test_a_figure_meets_its_limit_from_below_or_from_above():
    assert Limit("b", 6.0, 6.0).is_met
    assert not Limit("b", 6.01, 6.0).is_met
    assert not Limit("b", None, 6.0).is_met
    assert Limit("b", 6.0, 6.0, is_least=True).is_met
    assert not Limit("b", 5.99, 6.0, is_least=True).is_met


def test_limits_pass_miss_or_only_inform():
    limits = [Limit("good", 1.0, 1.5), Limit("bad", 2.0, 1.5), Limit("small scale", 9.0, 6.0, counts=False)]

    lines = text_of(limits_table([limit.to_json() for limit in limits])).splitlines()

    verdicts = {name: line for line in lines for name in ("good", "bad", "small scale") if name in line}
    assert "pass" in verdicts["good"]
    assert "miss" in verdicts["bad"]
    assert "information only" in verdicts["small scale"]


def test_clients_at_once_are_compared_with_one_by_their_rows_per_second():
    text = text_of(clients_table(summarize({1: [2.0, 1.0, 4.0], 4: [4.0, 4.0, 4.0]}, rows=1_000)))

    assert cells_of(text, " 500 ") == ["1", "500", "1.00"]
    assert cells_of(text, " 2.00 ") == ["4", "1,000", "2.00"]


def test_the_shares_of_ingest_add_up_to_the_whole():
    shares = {"parse": 3.0, "encode": 1.0}
    ingest = {"shares": shares, "client_peak_bytes": 200_000_000, "gateway_peak_bytes": 300_000_000}

    text = text_of(ingest_table(ingest))

    assert "75%" in text
    assert "25%" in text
    assert "client 200 MB" in text


STREAMING = {
    "end_to_answers": {
        "seconds": [3.0, 9.0, 2.0],
        "median_seconds": 3.0,
        "share": 0.09,
        "tenth_seconds": [1.5, 1.0, 1.75],
        "tenth_median_seconds": 1.5,
        "ratio": 2.0,
    },
    "batches": {
        "count": 12,
        "overhead_milliseconds": {"count": 11, "median": 163.0, "max": 1273.0},
        "commit_milliseconds": {"count": 0, "median": None, "max": None},
    },
    "breakdown": {
        "wall_seconds": 33.0,
        "cpu_seconds": {"client": 10.5, "Java": 22.0},
        "parts": {"upload": 29.0, "END to answers": 2.5, "download": 0.5},
        "batches": 4,
        "batches_with_overhead": 3,
        "thread_seconds": {
            "client to durable": {"parse": 30.0, "check": 6.0},
            "batches": {"check": 4.0},
            "final step": {},
        },
    },
}


def cells_of(shown: str, word: str) -> list[str]:
    row = next(line for line in shown.splitlines() if word in line)
    return [cell.strip() for cell in row.strip("│").split("│")]


def test_streaming_shows_both_sizes_and_what_a_batch_costs():
    standing = Standing("duckdb", "DuckDB", (1.0,), (1.0,), 1, ratio=1.0, agrees=True)

    shown = text_of(render(result_of(standing) | {"streaming": STREAMING}))

    assert cells_of(shown, "END to answers, scale 0.1")[1:] == ["3.00 s", "9.00 s"]
    assert cells_of(shown, "END to answers, scale 0.01")[1:] == ["1.50 s", "1.75 s"]
    assert cells_of(shown, "overhead per batch")[1:] == ["163 ms", "1,273 ms"]
    assert cells_of(shown, "commit per batch")[1:] == ["– ms", "– ms"]
    assert "12 batches; triggerExecution minus addBatch of 11" in shown


def test_a_breakdown_shows_thread_seconds_and_wall_time():
    shown = text_of(breakdown_table(STREAMING["breakdown"]))

    assert cells_of(shown, "parse") == ["client to durable", "parse", "30.00", "75%"]
    assert cells_of(shown, "batches ") == ["batches", "check", "4.00", "10%"]
    assert "40.00 thread-seconds" in shown
    assert "33.00 s of wall time: upload 29.00, END to answers 2.50, download 0.50" in shown
    assert "Spark's overhead is known of 3 of 4 batches" in shown
    assert "32.50 CPU seconds: client 10.50, Java 22.00" in shown
