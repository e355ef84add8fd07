"""Ten thousand stores with the longest names that are accepted: what is shown of them stays small."""

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS
from kopitiam.results.answers import BATCH_ROWS
from kopitiam.results.charts import CHARTS, chart_rows
from kopitiam.results.reading import AnswerFiles
from made_answers import SCHEMAS, MadeAnswers

STORES = 10_000
MOST_MEGABYTES = 180  # that a gateway grows by, for all of it
SHOW_ALL = """
import json, sys
from pathlib import Path
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.gateway.paging import answer_page
from kopitiam.results.charts import CHARTS, chart_rows
from kopitiam.results.forms import form_name
from kopitiam.results.reading import AnswerFiles
from kopitiam.results.report import report
from kopitiam.results.summary import Summary

def peak():  # of this program; getrusage would tell that of the process that started it
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000

folder = Path(sys.argv[1])
answers, before = AnswerFiles.of(folder), peak()
file = folder / form_name(ANSWERS["4"], "parquet")
pages = [answer_page(file, 20_000, 1000, search).rows for search in ("", "x")]
charts = {name: chart_rows(name, answers) for name in CHARTS}
page = report(answers, Summary(Questions(), {}, {}, {}, 1.0))
sizes = [len(page.encode()), len(json.dumps(charts)), *(len(json.dumps(rows)) for rows in pages)]
print(json.dumps([sizes, peak() - before]))
"""


def name_of(store: int) -> str:
    return f"{store:05d}".ljust(MAX_TEXT_CHARACTERS, "x")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = MadeAnswers().write(tmp_path_factory.mktemp("answers"))
    names = pa.array([name_of(store) for store in range(STORES)])
    ids = pa.array(range(STORES))

    def times(array: pa.Array, count: int) -> pa.Array:
        return pa.concat_arrays([array] * count)

    def of(value: object, count: int) -> pa.Array:
        return pa.array([value] * (STORES * count))

    halves = pa.array([half for half in ("2024-H1", "2024-H2", "2025-H1", "2025-H2") for _ in range(STORES)])
    made = {
        "3": [halves, times(ids, 4), times(names, 4), of(Decimal(5), 4), of(True, 4)],
        "4": [
            times(ids, 3),
            times(names, 3),
            pa.array([rank for rank in (1, 2, 3) for _ in range(STORES)]),
            times(ids, 3),
            of(date(1990, 1, 1), 3),
            of(7, 3),
            of(True, 3),
            of(True, 3),
        ],
    }
    for name, columns in made.items():
        cells = [column.cast(kind) for column, kind in zip(columns, SCHEMAS[name].types, strict=True)]
        rows = pa.Table.from_arrays(cells, schema=SCHEMAS[name])
        file = folder / f"results_query_{name}.parquet"
        pq.write_table(rows, file, row_group_size=BATCH_ROWS, compression="zstd")
    return folder


def test_report_charts_and_pages_stay_small_in_bytes_and_memory(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_ALL, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (report, charts, page, found), megabytes = json.loads(done.stdout)
    assert report < 3_000_000
    assert charts < 1_000_000
    assert page < 2_000_000
    assert found < 2_000_000
    assert megabytes < MOST_MEGABYTES


def test_stores_whose_names_begin_alike_are_told_apart(folder: Path) -> None:
    common = "x" * 500
    answers = MadeAnswers(
        {"3": [("2024-H1", store, f"{common}{store}", Decimal(1), True) for store in (1, 2)]}
    )
    rows = chart_rows("q3", answers)
    assert [row["store"] for row in rows] == [f"{'x' * 199}… (store {store})" for store in (1, 2)]
    assert [row["store_name"] for row in rows] == [f"{common}1", f"{common}2"]


def test_charts_show_the_first_stores_by_name(folder: Path) -> None:
    answers = AnswerFiles.of(folder)
    for name in ("q3", "q4"):
        stores = {row["store_name"] for row in chart_rows(name, answers)}
        assert stores == {name_of(store) for store in range(30)}
    assert set(CHARTS) >= {"q3", "q4"}
