"""Ten thousand stores with the longest accepted names: pages, charts and memory stay small."""

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drawn_charts import Chart
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answer_files import AnswerFiles
from kopitiam.results.answers import BATCH_ROWS, answer_schema
from kopitiam.results.charts.drawing import Drawing, draw
from kopitiam.results.charts.rendering import Renderer
from made_answers import MadeAnswers

pytestmark = pytest.mark.slow

STORES = 10_000
HALVES = ("2024-H1", "2024-H2", "2025-H1", "2025-H2")
MOST_MEGABYTES = 180  # that a gateway grows by, for all of it
ASKED = QuestionSet.of_catalog()
SHOW_ALL = """
import json, sys
from pathlib import Path
from kopitiam.gateway.routes.rows import answer_page
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.charts.rendering import open_renderer
from kopitiam.results.charts.drawing import Drawing, draw
from kopitiam.results.answer_files import AnswerFiles
from kopitiam.results.report import report
from kopitiam.results.summary import RunSummary

def peak():  # of this program; getrusage would tell that of the process that started it
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000

asked = QuestionSet.of_catalog()
folder = Path(sys.argv[1])
answers, before = AnswerFiles.of(folder, asked), peak()
file = folder / asked.by_name["4"].file_name("parquet")
pages = [answer_page(file, 20_000, 1000, search).rows for search in ("", "x")]
with open_renderer() as renderer:
    drawings = [draw(answers, question) for question in asked.questions]
    charts = [renderer.svg(each) for each in drawings if isinstance(each, Drawing)]
    page = report(answers, RunSummary(asked, {}, {}, {}, 1.0), renderer=renderer)
sizes = [len(page.encode()), max(map(len, charts)), *(len(json.dumps(rows)) for rows in pages)]
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

    halves = pa.array([half for half in HALVES for _ in range(STORES)])
    amounts = pa.array([Decimal(store) for _ in HALVES for store in range(STORES)])
    made = {
        "3": [halves, times(ids, 4), times(names, 4), amounts, of(True, 4)],
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
        schema = answer_schema(ASKED.by_name[name])
        cells = [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)]
        rows = pa.Table.from_arrays(cells, schema=schema)
        file = folder / ASKED.by_name[name].file_name("parquet")
        pq.write_table(rows, file, row_group_size=BATCH_ROWS, compression="zstd")
    return folder


def test_report_charts_and_pages_stay_small_in_bytes_and_memory(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_ALL, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (report, chart, page, found), megabytes = json.loads(done.stdout)
    assert report < 3_000_000
    assert chart < 1_000_000
    assert page < 2_000_000
    assert found < 2_000_000
    assert megabytes < MOST_MEGABYTES


def test_the_largest_of_ten_thousand_stores_are_drawn_and_the_others_added_up(
    folder: Path, renderer: Renderer
) -> None:
    answers = AnswerFiles.of(folder, ASKED)
    drawing = draw(answers, ASKED.by_name["3"])
    assert isinstance(drawing, Drawing)
    chart = Chart(renderer.svg(drawing))
    named = {mark.told("store_name")[:5] for mark in chart.marks}
    assert named == {f"{store:05d}" for store in range(STORES - 10, STORES)} | {"other"}
    others = chart.mark(store_name="others", year_half_created_at="2024-H1").told("tpv")
    assert others == f"RM {sum(range(STORES - 10)):,}.00"
    assert "39,960 of 40,000 rows are added up as others." in chart.words


def test_the_first_of_ten_thousand_stores_are_drawn_with_their_customers(
    folder: Path, renderer: Renderer
) -> None:
    drawing = draw(AnswerFiles.of(folder, ASKED), ASKED.by_name["4"])
    assert isinstance(drawing, Drawing)
    chart = Chart(renderer.svg(drawing))
    assert {mark.told("store_name") for mark in chart.marks} == {name_of(store) for store in range(40)}
    assert drawing.caption == ("The chart shows 120 of 30,000 rows: those of the first store_name.",)


def test_stores_whose_names_begin_alike_show_their_ids(renderer: Renderer) -> None:
    common = "x" * 500
    answers = MadeAnswers(
        {"3": [("2024-H1", store, f"{common}{store}", Decimal(store), True) for store in (1, 2)]}
    )
    drawing = draw(answers, ASKED.by_name["3"])
    assert isinstance(drawing, Drawing)
    words = [word for word in Chart(renderer.svg(drawing)).words if word.startswith("x")]
    assert [word.partition("…")[2] for word in words] == [
        " (store_id 1) · RM 1.00",
        " (store_id 2) · RM 2.00",
    ]
