"""Answers of two versions side by side, compared with a computation on plain dictionaries."""

import json
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.results.changes import AnswerChanges, compare, percent
from made_answers import MadeAnswers, Rows, answers_to

BY_STORE = """
name = "by_store"
title = "Sales by store"
from = "transactions"
by = { store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)" }
columns = ["store_name", "revenue", "purchases"]
order = ["store_name"]
"""
ALL_SALES = """
name = "all_sales"
title = "All sales"
from = "transactions"
measure = { revenue = "sum(final_amount)" }
columns = ["revenue"]
"""
LISTED = """
name = "listed"
title = "Sales"
from = "transactions"
columns = ["transaction_id", "final_amount"]
order = ["transaction_id"]
"""


def compared(definition: str, before: Rows, after: Rows, most: int = 1000) -> AnswerChanges:
    earlier, later = answers_to(definition, before), answers_to(definition, after)
    return compare(earlier, later, later.question_set.questions[0], most)


def store(number: int | None, name: str, revenue: str | None, purchases: int = 1) -> tuple[object, ...]:
    return number, name, None if revenue is None else Decimal(revenue), purchases, True


def test_new_gone_and_changed_rows_are_shown_with_difference_and_percentage() -> None:
    changes = compared(
        BY_STORE,
        [store(1, "North", "100", 4), store(2, "South", "50.5"), store(4, "Same", "1")],
        [store(1, "North", "112.345", 5), store(3, "East", "7"), store(4, "Same", "1")],
    )
    assert changes.text == "1 new, 1 gone, 1 changed, 1 the same"
    assert changes.titles == [
        "", "store_name",
        "revenue before", "revenue", "difference", "%",
        "purchases before", "purchases", "difference", "%",
    ]  # fmt: skip
    assert list(changes.cells()) == [
        ["new", "East", "", "RM 7.00", "", "", "", "1", "", ""],
        ["changed", "North", "RM 100.00", "RM 112.345", "+RM 12.345", "+12.3", "4", "5", "+1", "+25.0"],
        ["gone", "South", "RM 50.50", "", "", "", "1", "", "", ""],
    ]
    assert json.loads(json.dumps(changes.to_dict()))["rows"][1] == {
        "state": "changed",
        "store_id": 1,
        "store_name": "North",
        "before": {"revenue": "100.0000", "purchases": 4},
        "after": {"revenue": "112.3450", "purchases": 5},
        "times": 1,
    }


def test_the_name_of_the_later_answer_is_shown() -> None:
    changes = compared(BY_STORE, [store(1, "Old name", "1")], [store(1, "New name", "2")])
    assert [row[1] for row in changes.cells()] == ["New name"]


def test_a_missing_key_is_a_key_and_a_missing_figure_a_change() -> None:
    changes = compared(BY_STORE, [store(None, "none", "5")], [store(None, "none", None)])
    assert (changes.changed, changes.new, changes.gone) == (1, 0, 0)
    assert next(changes.cells())[:6] == ["changed", "none", "RM 5.00", "empty", "", ""]


def test_an_answer_without_keys_has_one_row() -> None:
    changes = compared(ALL_SALES, [(Decimal(8),)], [(Decimal(6),)])
    assert list(changes.cells()) == [["changed", "RM 8.00", "RM 6.00", "-RM 2.00", "-25.0"]]


def test_more_rows_than_the_limit_are_counted_only() -> None:
    rows: Rows = [store(number, f"Store {number}", "1") for number in range(6)]
    changes = compared(BY_STORE, rows, rows[:5], most=10)
    assert (changes.is_compared, changes.rows) == (False, ())
    assert changes.text == "5 rows now, 6 before: too many to compare"


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [("3", "4", "33.3"), ("-4", "-6", "-50.0"), ("8", "8.06", "0.8"), ("200", "200.1", "0.1")],
)
def test_the_percentage_is_of_the_earlier_figure_and_rounded_half_up(
    before: str, after: str, share: str
) -> None:
    assert percent(Decimal(before), Decimal(after)) == Decimal(share)


def test_nothing_has_no_percentage() -> None:
    assert percent(Decimal(0), Decimal(5)) is None


sales_rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([Decimal(1), Decimal("2.5")])), max_size=8
).map(sorted)


@given(before=sales_rows, after=sales_rows)
def test_listed_rows_are_compared_as_multisets(before: Rows, after: Rows) -> None:
    changes = compared(LISTED, before, after)
    new, gone = Counter(after) - Counter(before), Counter(before) - Counter(after)
    same = Counter(after) & Counter(before)
    assert (changes.new, changes.gone, changes.same) == (new.total(), gone.total(), same.total())
    shown = {(change.state, *change.labels.values()): change.times for change in changes.rows}
    expected = {("new", *row): count for row, count in new.items()}
    assert shown == expected | {("gone", *row): count for row, count in gone.items()}


figures = st.dictionaries(
    st.none() | st.integers(1, 5),
    st.tuples(st.sampled_from([None, "1", "2.25"]), st.integers(0, 2)),
    max_size=5,
)


@given(before=figures, after=figures)
def test_grouped_rows_are_compared_by_their_keys(before: dict, after: dict) -> None:
    def rows(groups: dict) -> Rows:
        return [store(key, f"Store {key}", *values) for key, values in groups.items()]

    changes = compared(BY_STORE, rows(before), rows(after))
    shared = before.keys() & after.keys()
    changed = {key for key in shared if before[key] != after[key]}
    states = {change.labels["store_id"]: change.state for change in changes.rows}
    assert states == (
        dict.fromkeys(after.keys() - shared, "new")
        | dict.fromkeys(before.keys() - shared, "gone")
        | dict.fromkeys(changed, "changed")
    )
    assert (changes.new, changes.gone) == (len(after) - len(shared), len(before) - len(shared))
    assert (changes.changed, changes.same) == (len(changed), len(shared) - len(changed))


def test_the_built_in_questions_can_be_compared() -> None:
    answers = MadeAnswers({"1": [("a", Decimal(75))], "2_1": [("2024-01", 1, "Latte", 3, True)]})
    for question in answers.question_set.questions:
        changes = compare(answers, answers, question)
        assert (changes.rows, changes.same) == ((), answers.rows(question.name))
