"""The real sample and its published answers."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.verification import expected_answers
from oracle import id_of, plain_answers, purchases_by_store, rows_of

TOP = 3


@pytest.fixture
def answers(real_sample: Path) -> dict[str, list[tuple[str, ...]]]:
    return expected_answers(real_sample / "input", Parameters())


def published(real_sample: Path, name: str) -> list[tuple[str, ...]]:
    with (real_sample / "expected" / builtin()[name].file_name("csv")).open(
        encoding="utf-8", newline=""
    ) as file:
        return [tuple(row) for row in csv.reader(file)][1:]


@pytest.mark.parametrize("name", ["1", "2_1", "2_2", "3"])
def test_answers_are_the_published_ones(real_sample, answers, name):
    assert Counter(answers[name]) == Counter(published(real_sample, name))


def test_top_customers_ours_and_published_are_choices_among_the_same_ties(real_sample, answers):
    names = {id_of(row["store_id"]): row["store_name"] for row in rows_of(real_sample / "input", "stores")}
    born = {id_of(row["user_id"]): row["birthdate"] for row in rows_of(real_sample / "input", "users")}
    sales = list(rows_of(real_sample / "input", "transactions"))
    for store, purchases in purchases_by_store(sales).items():
        cutoff = purchases.most_common(TOP)[-1][1]
        certain = Counter(born[user] for user, times in purchases.items() if times > cutoff)
        tied = Counter(born[user] for user, times in purchases.items() if times == cutoff)
        for rows in (answers["4"], published(real_sample, "4")):
            chosen = Counter(birthdate for name, birthdate in rows if name == names[store])
            assert chosen.total() == TOP
            assert certain <= chosen
            assert chosen - certain <= tied


def test_plain_python_gives_the_same_answers(real_sample, answers):
    assert answers == plain_answers(real_sample / "input", Parameters())
