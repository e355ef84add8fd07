"""The twelve questions of examples/questions.toml, with the four beside them, through the real pipeline."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kopitiam.cli.options import select_questions
from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.verification import expected_answers

FILE = Path(__file__).parents[2] / "examples" / "questions.toml"
CHUNK_ROWS = 3_000


@pytest.mark.long
def test_example_and_catalog_questions_have_the_answers_of_duckdb(make_pipeline, tiny_folder):
    own = select_questions(QuestionsSection(), Parameters(), [FILE])
    names = [*builtin(), *own.by_name]
    asked = select_questions(QuestionsSection(), Parameters(), [FILE], names)
    pipeline = make_pipeline(shards=2, max_chunks=8)
    run = pipeline.open(asked)
    with ThreadPoolExecutor(1) as workers:
        exports = open_folder(tiny_folder, asked.tables)
        for table in asked.tables.values():
            for chunk in read_chunks(exports, table, workers, pytest.fail, chunk_rows=CHUNK_ROWS):
                pipeline.put_table(run, table.name, chunk.number, chunk.rows)
    pipeline.seal(run)
    pipeline.process()
    pipeline.finish(run)
    expected = expected_answers(tiny_folder, asked.parameters, asked.questions)
    answers = pipeline.answers(run)
    for name in names:
        assert answers[name] == expected[name], name
