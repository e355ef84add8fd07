"""Any questions about any rows, through the real pipeline: any cut into chunks = one pass = plain Python."""

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from any_questions import definitions, tables, write_tables
from kopitiam.client.chunks import read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline import tables as pipeline_tables
from kopitiam.questions.catalog import read_json
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification import expected_answers
from question_oracle import expected_rows
from sampling import IS_FULL

PARAMETERS = Parameters(top=2)
EXAMPLES = 60 if IS_FULL else 2
AT_ONCE = 8  # questions in a run
quickly = settings(
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking tables of texts takes minutes
    suppress_health_check=list(HealthCheck),
)


@settings(quickly, max_examples=EXAMPLES)
@given(
    asked=st.tuples(*(definitions(name=f"mine_{n}") for n in range(AT_ONCE))),
    content=tables,
    chunk_rows=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_any_questions_are_answered_as_row_by_row(  # noqa: PLR0917
    make_pipeline, tmp_path, asked, content, chunk_rows, seed
):
    own = read_json(list(asked))
    question_set = QuestionSet.select(PARAMETERS, own)
    home = tmp_path / uuid.uuid4().hex
    pipeline = make_pipeline(home, shards=1 + seed % 3, max_chunks=1 + seed % 7)
    run = pipeline.open(question_set)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as workers:
        exports = open_folder(write_tables(Path(folder), content), question_set.tables)
        chunks = [
            (table.name, chunk.number, chunk.rows)
            for table in question_set.tables.values()
            for chunk in read_chunks(exports, table, workers, pytest.fail, chunk_rows=chunk_rows)
        ]
        by_duckdb = expected_answers(Path(folder), PARAMETERS, own)
    random.Random(seed).shuffle(chunks)
    for table, number, rows in chunks:
        pipeline.put_table(run, table, number, rows)
    pipeline.seal(run)
    pipeline.process()
    with pytest.MonkeyPatch.context() as patches:  # as if tables or answers did not fit into memory
        for bound in ("BROADCAST_BYTES", "COLLECTED_BYTES")[: seed % 3]:
            patches.setattr(pipeline_tables, bound, 0)
        pipeline.finish(run)
    answers = pipeline.answers(run)
    for question in own:
        expected = expected_rows(question, content, PARAMETERS)
        assert by_duckdb[question.name] == expected, question.definition
        assert answers[question.name] == expected, question.definition
