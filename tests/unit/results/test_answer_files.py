"""Answer files: order, columns and bytes of every form; answers, summary and rejected rows read back."""

import csv
import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopitiam.contracts.data_sets import Changes, DataUse
from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results import answers as answers_module
from kopitiam.results.answer_files import (
    PARQUET_KEY,
    AnswerFiles,
    read_rejected,
    read_summary,
    with_current_coverage,
    write_answers,
)
from kopitiam.results.answers import ComputedAnswer, ComputedAnswers
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from made_answers import small_answers

MONTHLY = [("year_month_created_at", pa.string()), ("item_id", pa.int64()), ("item_name", pa.string())]
MATCHED = [("item_is_matched", pa.bool_())]
SCHEMAS = {  # as the pipeline leaves them, money in ten-thousandths
    "1": pa.schema([("transaction_id", pa.string()), ("final_amount", pa.int64())]),
    "2_1": pa.schema([*MONTHLY, ("sellings_qty", pa.int64()), *MATCHED]),
    "2_2": pa.schema([*MONTHLY, ("profit_sum", pa.int64()), *MATCHED]),
    "3": pa.schema(
        [
            ("year_half_created_at", pa.string()),
            ("store_id", pa.int64()),
            ("store_name", pa.string()),
            ("tpv", pa.int64()),
            ("store_is_matched", pa.bool_()),
        ]
    ),
    "4": pa.schema(
        [
            ("store_id", pa.int64()),
            ("store_name", pa.string()),
            ("rank", pa.int32()),
            ("user_id", pa.int64()),
            ("birthdate", pa.date32()),
            ("purchases", pa.int64()),
            ("store_is_matched", pa.bool_()),
            ("user_is_matched", pa.bool_()),
        ]
    ),
}
UNKNOWN_IDS = {"stores": pa.array([77]), "menu_items": pa.array([99]), "users": pa.array([7])}
FILES = {f"results_query_{name}.{form}" for name in builtin() for form in ("csv", "json", "parquet")}


def table(schema, rows):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


@pytest.fixture
def sales(tmp_path):
    """Q1 as Spark writes it: sorted files, one of them without rows."""
    parts = ([("a", 750_000), ("b", 765_000)], [], [('c,"d"', 1_000_750), ("e", 10**18 - 1), ("f", 900_000)])
    paths = []
    for number, rows in enumerate(parts):
        paths.append(tmp_path / f"part-{number}.parquet")
        pq.write_table(table(SCHEMAS["1"], rows), paths[-1])
    return tuple(paths)


@pytest.fixture
def computed(sales):
    made = {
        "2_1": [("2024-02", 2, "Latte", 7, True), ("2024-01", 99, "99", 5, False)],
        "2_2": [("2024-02", 1, "Espresso", 705_000, True), ("2024-01", 99, "99", 1, False)],
        "3": [
            ("2024-H2", 1, "North", 20_000, True),
            ("2024-H1", 77, "77", 10_000, False),
            ("2024-H1", 9, "North", 750_750, True),
            ("2024-H1", 1, "North", 30_000, True),
        ],
        "4": [
            (1, "North", 1, 8, date(1990, 1, 1), 9, True, True),
            (1, "North", 2, 7, None, 8, True, False),
            (9, "North", 1, 8, date(1990, 1, 1), 3, True, True),
            (9, "North", 2, 5, date(1980, 2, 2), 2, True, True),
            (77, "77", 1, 7, None, 4, False, False),
            (77, "77", 2, 6, date(1970, 1, 1), 1, False, True),
        ],
    }
    in_memory = {name: ComputedAnswer(table(SCHEMAS[name], rows)) for name, rows in made.items()}
    return {"1": ComputedAnswer(files=sales), **in_memory}


@pytest.fixture
def answers(computed):
    return ComputedAnswers(QuestionSet.of_catalog(), computed, UNKNOWN_IDS)


@pytest.fixture
def nothing(tmp_path):
    pq.write_table(table(SCHEMAS["1"], []), tmp_path / "none.parquet")
    empty = {name: ComputedAnswer(table(schema, [])) for name, schema in SCHEMAS.items()}
    return ComputedAnswers(
        QuestionSet.of_catalog(), empty | {"1": ComputedAnswer(files=(tmp_path / "none.parquet",))}
    )


@pytest.fixture
def summary():
    return RunSummary(
        QuestionSet.of_catalog(),
        {"stores": RowCount(2, 0), "users": RowCount(5, 3)},
        {"stores": 1, "menu_items": 1, "users": 1},
        {"1": 5},
        1.234,
    )


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def rows(answers, name, *columns):
    return [
        tuple(row[column] for column in columns)
        for batch in answers.batches(name)
        for row in batch.to_pylist()
    ]


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_products_are_ordered_by_month(answers):
    assert rows(answers, "2_1", "year_month_created_at", "item_name", "sellings_qty") == [
        ("2024-01", "99", 5),
        ("2024-02", "Latte", 7),
    ]
    assert rows(answers, "2_2", "year_month_created_at", "item_name", "profit_sum") == [
        ("2024-01", "99", Decimal("0.0001")),
        ("2024-02", "Espresso", Decimal("70.5")),
    ]


def test_payment_values_are_ordered_by_half_store_name_and_store_id(answers):
    assert rows(answers, "3", "year_half_created_at", "store_name", "store_id", "tpv") == [
        ("2024-H1", "77", 77, Decimal(1)),
        ("2024-H1", "North", 1, Decimal(3)),
        ("2024-H1", "North", 9, Decimal("75.075")),
        ("2024-H2", "North", 1, Decimal(2)),
    ]


def test_customers_are_ordered_by_store_name_then_birthdate_with_the_unknown_first(answers):
    expected = [
        ("77", None, 7, 77),
        ("77", date(1970, 1, 1), 6, 77),
        ("North", None, 7, 1),
        ("North", date(1980, 2, 2), 5, 9),
        ("North", date(1990, 1, 1), 8, 1),
        ("North", date(1990, 1, 1), 8, 9),
    ]
    columns = ("store_name", "birthdate", "user_id", "store_id")
    assert rows(answers, "4", *columns) == expected
    customers = answers.computed["4"].table
    backwards = customers.take(list(reversed(range(customers.num_rows))))
    turned = replace(answers, computed=answers.computed | {"4": ComputedAnswer(backwards)})
    assert rows(turned, "4", *columns) == expected


@pytest.mark.parametrize("name", builtin())
def test_selected_columns_of_an_answer_are_read(answers, name):
    some = answers.schema(name).names[::-2]
    read = [row for batch in answers.batches(name, some) for row in batch.to_pylist()]
    assert [tuple(row.values()) for row in read] == rows(answers, name, *some)


@pytest.mark.parametrize("batch_rows", [1, 2, 65_536])
def test_large_sales_are_streamed_over_files_and_batches(answers, monkeypatch, batch_rows):
    monkeypatch.setattr(answers_module, "BATCH_ROWS", batch_rows)
    assert all(batch.num_rows <= batch_rows for batch in answers.batches("1"))
    assert rows(answers, "1", "transaction_id", "final_amount") == [
        ("a", Decimal(75)),
        ("b", Decimal("76.5")),
        ('c,"d"', Decimal("100.075")),
        ("e", Decimal("99999999999999.9999")),
        ("f", Decimal(90)),
    ]


def test_rows_are_counted_in_each_answer(answers):
    assert {name: answers.rows(name) for name in builtin()} == {"1": 5, "2_1": 2, "2_2": 2, "3": 4, "4": 6}


def test_unmatched_ids_are_counted_once_each(answers):
    assert answers.unmatched() == {"stores": 1, "menu_items": 1, "users": 1}


@pytest.mark.parametrize("name", builtin())
def test_every_answer_has_the_columns_of_its_reference_file(answers, name):
    assert set(builtin()[name].shown) <= set(answers.schema(name).names)
    assert all(batch.schema.equals(answers.schema(name)) for batch in answers.batches(name))


@pytest.mark.parametrize("batch_rows", [1, 65_536])
def test_all_forms_have_the_same_answers(out, answers, summary, monkeypatch, batch_rows):
    monkeypatch.setattr(answers_module, "BATCH_ROWS", batch_rows)
    write_answers(out, answers, summary)
    assert names(out) == FILES | {"summary.json"}
    for name, answer in builtin().items():
        wanted = rows(answers, name, *answers.schema(name).names)
        said = json.loads((out / f"results_query_{name}.json").read_bytes(), parse_float=Decimal)
        assert said["columns"] == answers.schema(name).names
        assert said["count"] == len(said["rows"]) == len(wanted)
        assert (said["rows_rejected"], said["unmatched"]) == (3, summary.unmatched)
        plain = [tuple(str(cell) if isinstance(cell, date) else cell for cell in row) for row in wanted]
        assert [tuple(row.values()) for row in said["rows"]] == plain
        kept = pq.read_table(out / f"results_query_{name}.parquet")
        assert kept.schema.equals(answers.schema(name))
        told = json.loads(kept.schema.metadata[PARQUET_KEY])
        assert told == {key: value for key, value in said.items() if key != "rows"}
        assert [tuple(row.values()) for row in kept.to_pylist()] == wanted
        with (out / answer.file_name("csv")).open(encoding="utf-8", newline="") as file:
            header, *lines = csv.reader(file)
        assert tuple(header) == answer.shown
        assert len(lines) == len(wanted)


def test_the_csv_has_exactly_the_documented_bytes(out, answers, summary):
    write_answers(out, answers, summary)
    assert (out / "results_query_1.csv").read_bytes() == (
        b'transaction_id,final_amount\na,75.0\nb,76.5\n"c,""d""",100.075\ne,99999999999999.9999\nf,90.0\n'
    )
    assert (out / "results_query_4.csv").read_bytes() == (
        b"store_name,birthdate\n77,\n77,1970-01-01\nNorth,\nNorth,1980-02-02\nNorth,1990-01-01\nNorth,1990-01-01\n"
    )


def test_answers_without_rows_are_files_with_headers(out, nothing, summary):
    write_answers(out, nothing, summary)
    assert names(out) == FILES | {"summary.json"}
    for name, answer in builtin().items():
        assert (out / answer.file_name("csv")).read_text() == ",".join(answer.shown) + "\n"
        assert json.loads((out / f"results_query_{name}.json").read_bytes())["rows"] == []
        assert pq.read_table(out / f"results_query_{name}.parquet").num_rows == 0
    assert nothing.unmatched() == {"stores": 0, "menu_items": 0, "users": 0}


def test_the_summary_accounts_for_all_rows(out, answers, summary):
    write_answers(out, answers, summary)
    said = json.loads((out / "summary.json").read_bytes())
    assert said == {
        "questions": QuestionSet.of_catalog().to_dict(),
        "rows": {"read": 10, "used": 7, "rejected": 3},
        "tables": {
            "stores": {"read": 2, "used": 2, "rejected": 0},
            "users": {"read": 8, "used": 5, "rejected": 3},
        },
        "unmatched": {"stores": 1, "menu_items": 1, "users": 1},
        "answers": {"1": 5},
        "seconds": 1.23,
    }


def test_the_same_answers_give_the_same_bytes_in_every_form(out, answers, summary):
    files = []
    for seconds in (1.0, 99.0):
        write_answers(out, answers, replace(summary, seconds=seconds))
        files.append({name: (out / name).read_bytes() for name in FILES})
    assert files[0] == files[1]


@pytest.mark.parametrize("kind", ["answers", "nothing"])
def test_the_coverage_of_a_json_answer_can_be_replaced(out, kind, summary, request):
    write_answers(out, request.getfixturevalue(kind), replace(summary, coverage=Coverage(5, 7, None)))
    with (out / "results_query_3.json").open("rb") as file:
        before = json.loads(file.read())
        file.seek(0)
        after = json.loads(
            with_current_coverage(file.readline(), lambda made: replace(made, durable=9)) + file.read()
        )
    assert before["coverage"] == {"processed": 5, "durable": 7, "expected": None}
    assert after == before | {"coverage": {"processed": 5, "durable": 9, "expected": None}}


def test_the_summary_is_written_last(out, answers, summary, monkeypatch):
    replaced = []
    real_replace = Path.replace

    def replace(source, target):
        replaced.append(target.name)
        return real_replace(source, target)

    monkeypatch.setattr(Path, "replace", replace)
    write_answers(out, answers, summary)
    assert replaced[-1] == "summary.json"
    assert set(replaced[:-1]) == FILES
    assert len(replaced) == 16


def test_files_of_an_earlier_run_are_replaced(out, answers, summary):
    for name in FILES | {"summary.json"}:
        (out / name).write_text("old" * 10_000)
    (out / "notes.txt").write_text("not ours")
    write_answers(out, answers, summary)
    assert not any((out / name).read_bytes().startswith(b"old") for name in FILES | {"summary.json"})
    assert (out / "notes.txt").read_text() == "not ours"


def test_a_failure_leaves_complete_files_and_no_summary(out, answers, summary, sales):
    for name in ("results_query_1.json", "summary.json"):
        (out / name).write_text("old")
    sales[2].write_bytes(sales[2].read_bytes()[:-8] + b"damaged!")
    with pytest.raises(pa.ArrowInvalid):
        write_answers(out, answers, summary)
    assert names(out) == {"results_query_1.json"}
    assert (out / "results_query_1.json").read_text() == "old"


SUMMARY = RunSummary(
    QuestionSet.of_catalog(Parameters(top=7)), {"users": RowCount(5, 3)}, {"stores": 1}, {"1": 5}, 1.25
)
HEADER = "table,file,line,reason,row"


@pytest.mark.parametrize("name", builtin())
def test_answers_are_read_back_unchanged(tmp_path, name):
    made = small_answers()
    read = AnswerFiles.of(made.write(tmp_path), made.question_set)
    assert read.schema(name).equals(made.schema(name))
    assert read.rows(name) == made.rows(name)
    rows = [row for batch in read.batches(name) for row in batch.to_pylist()]
    assert rows == [row for batch in made.batches(name) for row in batch.to_pylist()]
    one = read.schema(name).names[-1]
    assert [batch[0].to_pylist() for batch in read.batches(name, [one])] == [[row[one] for row in rows]]


OVER_DATA = DataUse("id", "sales", True, 2, 3, Changes(added=1, kept=4, rows_added=7))


@pytest.mark.parametrize(
    "more", [{}, {"coverage": Coverage(1, 2, None)}, {"fingerprint": "sha256:00"}, {"data": OVER_DATA}]
)
def test_a_summary_is_read_back_unchanged(more):
    summary = replace(SUMMARY, **more)
    assert read_summary(json.dumps(summary.to_dict()).encode()) == summary


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"attempt1", b'{"questions": 7}'])
def test_other_content_than_a_summary_is_refused(text):
    with pytest.raises(ServiceError, match=r"summary.json: not a summary"):
        read_summary(text)


def test_the_first_rejected_rows_are_read():
    lines = [HEADER, *(f'users,u.csv,{n},"not ""it""","a,b"' for n in range(9))]
    assert read_rejected(lines, 2) == [Rejected("u.csv", n, 'not "it"', "a,b") for n in (0, 1)]
    assert len(read_rejected(lines, 20)) == 9


@pytest.mark.parametrize(
    "lines", [[], ["x"], ["x", "y", "z,z,z"], [HEADER, "users"], [HEADER, "users,u.csv,seven,no,row"]]
)
def test_malformed_rejected_rows_are_skipped(lines):
    assert read_rejected(lines, 5) == []


def test_a_long_rejected_row_is_shortened():
    lines = [
        HEADER,
        f"users,u.csv,1,no,{'x' * 200_000}",
        f"users,u.csv,{'9' * 6000},no,row",
        "users,u.csv,2,no,y",
    ]
    assert [(bad.line, len(bad.row)) for bad in read_rejected(lines, 5)] == [(1, 400), (2, 1)]
