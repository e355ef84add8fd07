"""Instants and dates at the bounds of the calendar are answered, from memory and from files of Spark."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from any_questions import write_tables
from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline import tables
from kopitiam.questions.catalog import read_json
from kopitiam.questions.question_set import QuestionSet
from question_oracle import expected_rows

INSTANTS = ("0001-01-01 00:00:00", "1582-10-10 12:00:00", "1969-12-31 23:59:59", "9999-12-31 23:59:59")
SALE = {"store_id": "1", "payment_method_id": "1", "voucher_id": "", "final_amount": "1"} | {
    "original_amount": "",
    "discount_applied": "",
}
CONTENT = {
    "transactions": [
        SALE | {"transaction_id": f"sale {n}", "user_id": f"{n}.0", "created_at": instant}
        for n, instant in enumerate(INSTANTS)
    ],
    "users": [
        {"user_id": str(n), "gender": "", "birthdate": instant[:10], "registered_at": instant}
        for n, instant in enumerate(INSTANTS)
    ],
}
QUESTIONS = read_json(
    [
        {
            "name": "listed",
            "title": "Rows with instants",
            "from": "transactions",
            "columns": ["created_at", "registered_at", "birthdate", "user_id"],
        },
        {
            "name": "grouped",
            "title": "Groups with instants",
            "from": "transactions",
            "by": {"user_id": "user_id", "registered": "users.registered_at"},
            "measure": {"first": "min(created_at)", "last": "max(created_at)"},
            "columns": ["user_id", "registered", "registered_at", "birthdate", "first", "last"],
        },
    ]
)


@pytest.mark.parametrize("collected_bytes", [0, tables.COLLECTED_BYTES], ids=["files", "memory"])
@pytest.mark.long
def test_the_first_and_the_last_instant_are_answered(make_pipeline, monkeypatch, tmp_path, collected_bytes):
    monkeypatch.setattr(tables, "COLLECTED_BYTES", collected_bytes)
    question_set = QuestionSet.select(Parameters(), QUESTIONS)
    pipeline = make_pipeline()
    run = pipeline.open(question_set)
    exports = open_folder(write_tables(tmp_path / "exports", CONTENT), question_set.tables)
    with ThreadPoolExecutor(1) as workers:
        for table in question_set.tables.values():
            for chunk in read_chunks(exports, table, workers, pytest.fail):
                pipeline.put_table(run, table.name, chunk.number, chunk.rows)
    pipeline.seal(run)
    pipeline.process()
    pipeline.finish(run)
    answers = pipeline.answers(run)
    for question in QUESTIONS:
        assert answers[question.name] == expected_rows(question, CONTENT, Parameters())
