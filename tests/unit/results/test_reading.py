"""Answers, summary and rejected rows read back."""

import json
from dataclasses import replace

import pytest

from kopitiam.contracts.errors import ServiceError
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.reading import AnswerFiles, read_rejected, read_summary
from kopitiam.results.summary import Coverage, RowCount, Summary
from made_answers import small_answers

SUMMARY = Summary(
    QuestionSet.of_catalog(Parameters(top=7)), {"users": RowCount(5, 3)}, {"stores": 1}, {"1": 5}, 1.25
)
HEADER = "table,file,line,reason,row"


@pytest.mark.parametrize("name", builtin())
def test_answers_are_read_back_as_they_are(tmp_path, name):
    made = small_answers()
    read = AnswerFiles.of(made.write(tmp_path), made.asked)
    assert read.schema(name).equals(made.schema(name))
    assert read.rows(name) == made.rows(name)
    rows = [row for batch in read.batches(name) for row in batch.to_pylist()]
    assert rows == [row for batch in made.batches(name) for row in batch.to_pylist()]
    one = read.schema(name).names[-1]
    assert [batch[0].to_pylist() for batch in read.batches(name, [one])] == [[row[one] for row in rows]]


@pytest.mark.parametrize("more", [{}, {"coverage": Coverage(1, 2, None)}, {"fingerprint": "sha256:00"}])
def test_a_summary_is_read_back_as_it_is(more):
    summary = replace(SUMMARY, **more)
    assert read_summary(json.dumps(summary.to_dict()).encode()) == summary


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"attempt1", b'{"questions": 7}'])
def test_what_is_no_summary_is_refused(text):
    with pytest.raises(ServiceError, match=r"summary.json: not a summary"):
        read_summary(text)


def test_the_first_rejected_rows_are_read():
    lines = [HEADER, *(f'users,u.csv,{n},"not ""it""","a,b"' for n in range(9))]
    assert read_rejected(lines, 2) == [Rejected("u.csv", n, 'not "it"', "a,b") for n in (0, 1)]
    assert len(read_rejected(lines, 20)) == 9


@pytest.mark.parametrize(
    "lines", [[], ["x"], ["x", "y", "z,z,z"], [HEADER, "users"], [HEADER, "users,u.csv,seven,no,row"]]
)
def test_what_a_client_sent_in_place_of_rejected_rows_is_passed_over(lines):
    assert read_rejected(lines, 5) == []


def test_a_long_rejected_row_is_shortened():
    lines = [
        HEADER,
        f"users,u.csv,1,no,{'x' * 200_000}",
        f"users,u.csv,{'9' * 6000},no,row",
        "users,u.csv,2,no,y",
    ]
    assert [(bad.line, len(bad.row)) for bad in read_rejected(lines, 5)] == [(1, 400), (2, 1)]
