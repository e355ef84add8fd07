"""The law that makes increments safe: any cut into chunks, in any order, merged = one pass = plain Python."""

from collections import Counter
from functools import reduce

from chunked_sales import AMOUNTS, NAMES, TIMES, Chunk, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from kopitiam.contracts.money import to_text
from kopitiam.contracts.questions import Questions
from kopitiam.pipeline import questions as asked

CHUNKS = 3
SLOW = [HealthCheck.too_slow]  # every example takes a Spark action
times = st.sampled_from(TIMES)
amounts = st.sampled_from(AMOUNTS)
sales = st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.none() | st.integers(1, 4), amounts, times)
items = st.tuples(st.integers(1, 3), st.integers(-1, 3), amounts, times)
chosen = st.sampled_from([Questions(), Questions(2024, 2024, "08:00:00", "20:00:00", "60.5", 1)])


def placed(rows, most):
    """Rows, each with the number of the chunk that it falls into; chunks without rows stay empty."""
    return st.lists(st.tuples(st.integers(0, CHUNKS - 1), rows), max_size=most)


def frames(answers, tables, questions):
    """The answers to partials, each with exactly the columns of its file, and the kind for Q2."""
    top = asked.customers_by_store(answers["purchases"], questions)
    return {
        "1": answers["large_sales"].select("transaction_id", "final_amount"),
        "2": asked.products_by_month(answers["products"], tables["menu_items"]).select(
            "kind", "year_month_created_at", "item_name", "figure"
        ),
        "3": asked.tpv_by_half_and_store(answers["tpv"], tables["stores"]).select(
            "year_half_created_at", "store_name", "tpv"
        ),
        "4": asked.birthdates_by_store(top, tables["stores"], tables["users"]).select(
            "store_name", "birthdate"
        ),
    }


def as_in_the_files(rows):
    """Rows as they stand in the answer files: five multisets of texts."""
    figures = {"sellings_qty": ("2_1", str), "profit_sum": ("2_2", to_text)}
    texts = {name: Counter() for name in ("1", "2_1", "2_2", "3", "4")}
    texts["1"].update((sale, to_text(units)) for sale, units in rows["1"].elements())
    texts["3"].update((half, store, to_text(units)) for half, store, units in rows["3"].elements())
    texts["4"].update((store, born or "") for store, born in rows["4"].elements())
    for kind, month, item, figure in rows["2"].elements():
        name, show = figures[kind]
        texts[name][month, item, show(figure)] += 1
    return texts


@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW)
@given(
    cut=st.fixed_dictionaries({"transactions": placed(sales, 14), "transaction_items": placed(items, 12)}),
    order=st.permutations(range(CHUNKS)),
    questions=chosen,
)
def test_merged_partials_of_any_chunks_are_the_answers_of_one_pass(table, collected, cut, order, questions):
    rows = NAMES | {name: [row for _, row in placed_rows] for name, placed_rows in cut.items()}
    tables = {name: table(name, those) for name, those in rows.items()}

    def chunk(name, number):  # a chunk is one file, so one partition
        return table(name, [row for place, row in cut[name] if place == number]).coalesce(1)

    def partials(of):
        sold = asked.partials_of_items(of("transaction_items"), questions)
        return asked.partials_of_transactions(of("transactions"), questions) | sold

    of_chunks = [partials(lambda name, number=number: chunk(name, number)) for number in order]
    of_all = partials(tables.get)
    merged = {kind: reduce(DataFrame.union, [p[kind] for p in of_chunks]) for kind in of_all}
    in_chunks, in_one_pass = frames(merged, tables, questions), frames(of_all, tables, questions)

    found = collected(
        {f"merged {name}": frame for name, frame in in_chunks.items()}
        | {f"one pass {name}": frame for name, frame in in_one_pass.items()}
    )

    answers = plain([Chunk(name, 0, those) for name, those in rows.items()], questions)
    expected = {name: Counter(answer) for name, answer in answers.items()}
    assert as_in_the_files({name: found[f"one pass {name}"] for name in in_one_pass}) == expected
    assert as_in_the_files({name: found[f"merged {name}"] for name in in_chunks}) == expected
