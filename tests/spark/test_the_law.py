"""The law that makes increments safe: any cut into chunks, in any order, merged = one pass = plain Python."""

from collections import Counter
from functools import reduce

from chunked_sales import AMOUNTS, NAMES, TIMES, Chunk, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import CATALOG, answer_plan
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from kopitiam.contracts.money import to_text
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.pipeline.compiler.answers import finished, listed, merged_groups
from kopitiam.pipeline.compiler.partials import PartialLayout, merged, partial_of
from kopitiam.pipeline.compiler.ranking import ranked_groups
from sampling import IS_FULL

CHUNKS = 3
SLOW = [HealthCheck.too_slow]  # every example takes a Spark action
times = st.sampled_from(TIMES)
amounts = st.sampled_from(AMOUNTS)
sales = st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.none() | st.integers(1, 4), amounts, times)
items = st.tuples(st.integers(1, 3), st.integers(-1, 3), amounts, times)
chosen = st.sampled_from([Parameters(), Parameters(2024, 2024, "08:00:00", "20:00:00", "60.5", 1)])


def placed(rows, most):
    """Rows, each with the number of the chunk that it falls into; chunks without rows stay empty."""
    return st.lists(st.tuples(st.integers(0, CHUNKS - 1), rows), max_size=most)


def answers_of(partials, tables, parameters):
    """Answers by question, with exactly the columns of its file; money and counts as text."""
    frames = {}
    for name, question in CATALOG.by_name.items():
        plan = answer_plan(name, parameters)
        partial = partials[plan.partial.name]
        if question.lists_rows:
            answer = partial.transform(listed(plan, tables))
        else:
            groups = partial.transform(merged_groups(plan, tables)).transform(ranked_groups(plan))
            answer = groups.transform(finished(plan, tables))
        frames[name] = answer.select(*(f.col(column).cast("string") for column in question.shown))
    return frames


def as_in_the_files(rows, question):
    kinds = [question.columns_by_name[column].kind for column in question.shown]
    return Counter(
        tuple(
            to_text(int(cell)) if kind is Kind.MONEY else cell or ""
            for kind, cell in zip(kinds, row, strict=True)
        )
        for row in rows.elements()
    )


@settings(
    max_examples=40 if IS_FULL else 4,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=SLOW,
)
@given(
    cut=st.fixed_dictionaries({"transactions": placed(sales, 14), "transaction_items": placed(items, 12)}),
    order=st.permutations(range(CHUNKS)),
    parameters=chosen,
)
def test_merged_partials_of_any_chunks_are_the_answers_of_one_pass(table, collected, cut, order, parameters):
    rows = NAMES | {name: [row for _, row in placed_rows] for name, placed_rows in cut.items()}
    tables = {
        name: table(name, table_rows).drop("table", "run", "shard") for name, table_rows in rows.items()
    }

    def chunk(name, number):  # a chunk is one file, so one partition
        frame = table(name, [row for place, row in cut[name] if place == number])
        return frame.drop("table", "run", "shard").coalesce(1)

    def partials(frame_of):
        return {
            plan.name: frame_of(plan.fact).transform(partial_of(plan, parameters)).transform(complete(plan))
            for plan in CATALOG.partials
        }

    of_chunks = [partials(lambda name, number=number: chunk(name, number)) for number in order]
    of_all = partials(tables.get)
    unions = {
        kind: reduce(DataFrame.unionByName, [partials_of_chunk[kind] for partials_of_chunk in of_chunks])
        for kind in of_all
    }
    merged_once = {plan.name: unions[plan.name].transform(merged(plan)) for plan in CATALOG.partials}
    frames = {
        f"{name} {how}": frame
        for how, which in (("merged", unions), ("merged twice", merged_once), ("in one pass", of_all))
        for name, frame in answers_of(which, tables, parameters).items()
    }

    answers = collected(frames)

    expected = plain([Chunk(name, 0, table_rows) for name, table_rows in rows.items()], parameters)
    for how, of_question in ((key, key.partition(" ")[0]) for key in answers):
        question = CATALOG.by_name[of_question]
        assert as_in_the_files(answers[how], question) == Counter(expected[of_question]), how


def complete(plan):
    """As a partial is read back: with all columns of its layout."""
    schema = PartialLayout(plan).schema

    def with_all_columns(partial):
        missing = [f.lit(None).cast(field.dataType).alias(field.name) for field in schema]
        there = {name: f.col(name) for name in partial.columns}
        return partial.select(
            *(there.get(field.name, null) for field, null in zip(schema, missing, strict=True))
        )

    return with_all_columns
