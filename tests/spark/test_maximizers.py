"""Partials are summed before they are ranked; ties go to the lowest key."""

from collections import Counter

import pytest
from plans import answer_plan, partials_of

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.answers import merged_groups, shuffled, slices
from kopitiam.pipeline.compiler.ranking import ranked_groups
from kopitiam.questions.catalog import read_json
from kopitiam.questions.question_set import QuestionSet

PRODUCTS = [  # month, item, rows, quantity, subtotal
    # month 1: the largest partial is item 1's, the largest sum item 2's
    (1, 1, 1, 10, 10),
    (1, 2, 1, 6, 6),
    (1, 2, 1, 6, 6),
    # month 2: equals in both figures
    (2, 30, 1, 5, 50),
    (2, 4, 1, 5, 50),
    (2, 200, 1, 5, 50),
    # month 3: one sells most, another earns most
    (3, 7, 1, 9, 10),
    (3, 8, 1, 1, 90),
    # month 4: nothing but losses
    (4, 5, 1, -3, -30),
    (4, 6, 1, -2, -40),
    # month 5: an id of 0 against its equal
    (5, 0, 1, 1, 1),
    (5, 1, 1, 1, 1),
]
CUSTOMERS = [  # store, user, purchases
    # store 1: user 9 wins by adding; 20, 3 and 100 are equal behind
    (1, 9, 2),
    (1, 9, 2),
    (1, 20, 3),
    (1, 3, 3),
    (1, 100, 1),
    (1, 100, 2),
    (1, 5, 1),
    # store 2: fewer customers than asked for
    (2, 9, 1),
    # store 3: exactly three, all equal
    (3, 33, 1),
    (3, 11, 1),
    (3, 22, 1),
]
CUTS = (None, slices(1), slices(2), shuffled)


def ranked(spark, plan, rows, cut=None):
    groups = partials_of(spark, plan.partial, rows).transform(merged_groups(plan, {}, cut))
    return groups.transform(ranked_groups(plan))


def test_products_are_ranked_by_their_sums(spark, collected):
    best = collected(
        {
            name: ranked(spark, answer_plan(name), PRODUCTS).selectExpr("k0", "k1", "CAST(m0 AS BIGINT)")
            for name in ("2_1", "2_2")
        }
    )
    assert best["2_1"] == Counter([(1, 2, 12), (2, 4, 5), (3, 7, 9), (4, 6, -2), (5, 0, 1)])
    assert best["2_2"] == Counter([(1, 2, 12), (2, 4, 50), (3, 8, 90), (4, 5, -30), (5, 0, 1)])


def test_payment_value_is_summed_by_store_and_half_year(spark, collected):
    largest = 999_999_999_999_999_999
    rows = [(4048, 1, 1, 100), (4048, 1, 1, -30), (4049, 1, 1, 5), (4048, 2, 1, 0)]
    rows += [(4048, 2, 1, largest)] * 20  # beyond 64 bits
    total = ranked(spark, answer_plan("3"), rows).selectExpr("k0", "k1", "CAST(m0 AS STRING)")
    assert collected({"total": total})["total"] == Counter(
        [(4048, 1, "70"), (4049, 1, "5"), (4048, 2, str(20 * largest))]
    )


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.long
def test_ties_of_customers_go_to_the_lowest_user_ids(spark, collected, cut):
    top = collected(
        {
            str(n): ranked(spark, answer_plan("4", Parameters(top=n)), CUSTOMERS, cut).select(
                "k0", "rank", "k1", "m0"
            )
            for n in (1, 3, 5)
        }
    )
    first = [(1, 1, 9, 4), (2, 1, 9, 1), (3, 1, 11, 1)]
    three = [*first, (1, 2, 3, 3), (1, 3, 20, 3), (3, 2, 22, 1), (3, 3, 33, 1)]
    five = [*three, (1, 4, 100, 3), (1, 5, 5, 1)]
    assert top == {"1": Counter(first), "3": Counter(three), "5": Counter(five)}


def test_many_or_long_groups_are_not_ranked_in_memory(spark, collected):
    definition = {
        "name": "buyers",
        "title": "Buyers and their last sale",
        "from": "transactions",
        "by": {"store_id": "store_id", "user_id": "user_id"},
        "measure": {"purchases": "count(*)", "last": "max(transaction_id)"},
        "rank": {"by": "purchases", "within": ["store_id"], "top": "@top"},
        "columns": ["store_id", "user_id", "purchases"],
    }
    short = definition | {"name": "short", "measure": {"purchases": "count(*)"}}
    long_rows = [(*row, f"sale {number}") for number, row in enumerate(CUSTOMERS)]
    plans = {}
    for question, top, rows in (
        (short, 1_000, CUSTOMERS),
        (short, 1_001, CUSTOMERS),
        (definition, 5, long_rows),
    ):
        name, questions = question["name"], QuestionSet.select(Parameters(), read_json([question]))
        plan = answer_plan(name, Parameters(top=top), questions)
        groups = ranked(spark, plan, rows)
        plans[name, top] = groups._jdf.queryExecution().optimizedPlan().toString()
        first = collected({"first": groups.select("k0", "rank", "k1", "m0")})["first"]
        assert first >= Counter([(1, 1, 9, 4), (1, 2, 3, 3), (1, 3, 20, 3), (1, 5, 5, 1), (2, 1, 9, 1)])
    assert {case: "Window" in plan for case, plan in plans.items()} == {
        ("short", 1_000): False,
        ("short", 1_001): True,
        ("buyers", 5): True,
    }


def test_ties_go_to_empty_keys_first_in_every_slice(spark, collected):
    [question] = read_json(
        [
            {
                "name": "buyers",
                "title": "Buyers",
                "from": "transactions",
                "by": {"user_id": "user_id"},
                "measure": {"purchases": "count(*)"},
                "rank": {"by": "purchases", "top": 2, "order": "asc"},
                "columns": ["user_id", "purchases"],
            }
        ]
    )
    plan = answer_plan("buyers", questions=QuestionSet.select(Parameters(), [question]))
    rows = [(None, 1), (None, 1), (7, 2), (3, 2), (1, 9)]
    for cut in CUTS:
        first = ranked(spark, plan, rows, cut).select("rank", "k0", "m0")
        assert collected({"first": first})["first"] == Counter([(1, None, 2), (2, 3, 2)])


@pytest.mark.parametrize("cut", CUTS)
def test_values_are_counted_once_however_partials_are_cut(spark, collected, cut):
    [question] = read_json(
        [
            {
                "name": "customers",
                "title": "Customers",
                "from": "transactions",
                "by": {"store_id": "store_id"},
                "measure": {"customers": "count(distinct user_id)"},
                "columns": ["store_id", "customers"],
            }
        ]
    )
    plan = answer_plan("customers", questions=QuestionSet.select(Parameters(), [question]))
    groups = ranked(spark, plan, CUSTOMERS, cut).select("k0", "m0")
    assert collected({"groups": groups})["groups"] == Counter([(1, 5), (2, 1), (3, 3)])
