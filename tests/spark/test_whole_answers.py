"""All answers of landed tables: the same bytes however Spark cuts the work, and no figure that overflowed."""

import pytest

from kopitiam.contracts.errors import RunFailed
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import TABLES
from kopitiam.pipeline.batch import answer
from kopitiam.results.answers import AnswerSet
from kopitiam.results.forms import write_forms
from kopitiam.results.summary import RowCount, Summary

PARTITIONS = "spark.sql.shuffle.partitions"
COALESCE = "spark.sql.adaptive.coalescePartitions.enabled"  # would make one of many small ones
NOON = "2024-03-01 12:00:00"
LARGEST = "99999999999999.9999"
TWINS = {  # stores and customers that differ in their ids only
    "stores": [(store, "Kopi Twin") for store in range(1, 31)],
    "menu_items": [(1, "Latte")],
    "users": [(1, "1990-01-01"), (2, "1990-01-01")],
    "transactions": [
        (f"sale {number % 3}", 1 + number % 30, 1 + number // 30, "80", NOON) for number in range(60)
    ],
    "transaction_items": [(1, 1, "6", NOON)],
}


@pytest.fixture
def shuffle_partitions(spark):
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(COALESCE, "false")
    yield lambda count: spark.conf.set(PARTITIONS, str(count))
    spark.conf.set(PARTITIONS, before)
    spark.conf.unset(COALESCE)


def files_of(spark, landed, out):
    """Every answer file by name, made in the folder `out`."""
    (out / "files").mkdir(parents=True)
    answers = AnswerSet(answer(spark, landed, Questions(), out))
    summary = Summary(
        Questions(),
        dict.fromkeys(TABLES, RowCount(0, 0)),
        answers.unmatched(),
        {name: answers.rows(name) for name in ANSWERS},
        seconds=0,
    )
    write_forms(out / "files", answers, summary)
    return {file.name: file.read_bytes() for file in (out / "files").iterdir()}


def test_one_shuffle_partition_or_many_give_the_same_bytes(spark, tiny_landed, shuffle_partitions, tmp_path):
    made = {}
    for count in (1, 7):
        shuffle_partitions(count)
        made[count] = files_of(spark, tiny_landed, tmp_path / str(count))
    assert len(made[1]) == 3 * len(ANSWERS) + 1
    assert all(made[1][answer.csv_name].count(b"\n") > 1 for answer in ANSWERS.values())
    assert made[1] == made[7]


def test_stores_of_one_name_come_in_the_same_order_too(spark, land, shuffle_partitions, tmp_path):
    landed = land(tmp_path / "landing", TWINS)
    made = {}
    for count in (1, 7):
        shuffle_partitions(count)
        made[count] = files_of(spark, landed, tmp_path / str(count))
    assert made[1] == made[7]


@pytest.mark.parametrize(
    "too_much",
    [
        {"transactions": [(f"sale {number}", 1, None, LARGEST, NOON) for number in range(20)]},
        {"transaction_items": [(1, 1, LARGEST, NOON) for _ in range(20)]},
        {"transaction_items": [(1, 10**17 - 1, "1", NOON) for _ in range(100)]},
    ],
    ids=["payments", "profits", "quantities"],
)
def test_a_sum_too_large_fails_loudly(spark, land, tmp_path, too_much):
    landed = land(tmp_path / "landing", TWINS | too_much)
    with pytest.raises(RunFailed, match=r"(?i)overflow"):
        answer(spark, landed, Questions(), tmp_path)


def test_the_largest_sums_that_fit_are_exact(spark, land, tmp_path):
    most = 9  # of the largest amounts; a tenth would not fit
    landed = land(
        tmp_path / "landing",
        TWINS
        | {
            "transactions": [(f"sale {number}", 1, None, LARGEST, NOON) for number in range(most)],
            "transaction_items": [(1, 10**17 - 1, LARGEST, NOON) for _ in range(most)],
        },
    )
    files = files_of(spark, landed, tmp_path / "out")
    assert files["results_query_3.csv"].splitlines()[1:] == [b"2024-H1,Kopi Twin,899999999999999.9991"]
    assert files["results_query_2_2.csv"].splitlines()[1:] == [b"2024-03,Latte,899999999999999.9991"]
    assert files["results_query_2_1.csv"].splitlines()[1:] == [b"2024-03,Latte,899999999999999991"]


def test_tables_without_rows_have_no_answers(spark, land, tmp_path):
    files = files_of(spark, land(tmp_path / "landing", {}), tmp_path / "out")
    for wanted in ANSWERS.values():
        assert files[wanted.csv_name].decode() == ",".join(wanted.columns) + "\n"
