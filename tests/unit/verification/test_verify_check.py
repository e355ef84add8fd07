"""Right answer files are equal; every kind of damage is reported."""

import csv
import json

import pytest
import typer
from typer.testing import CliRunner

from kopitiam.cli.verify import verify as verify_command
from kopitiam.contracts.errors import Difference, InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.verification import expected_answers, verify

pytestmark = pytest.mark.slow

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(verify_command)


@pytest.fixture
def data(shop):
    for number in range(30):
        shop.sell(transaction_id=f"t{number:02}", final_amount=f"{75 + number}.075", user_id=str(number % 4))
    shop.sell(transaction_id="t00", final_amount="75.075", store_id="9", created_at="2024-08-01 10:00:00")
    shop.sell(created_at="never")
    shop.sell_item()
    shop.sell_item(item_id="7", subtotal="70.5")
    return shop.write()


@pytest.fixture
def results(data, tmp_path):
    folder = tmp_path / "results"
    write_answers(folder, expected_answers(data, Parameters()))
    return folder


def write_answers(folder, answers):
    folder.mkdir(exist_ok=True)
    for name, rows in answers.items():
        question = builtin()[name]
        with (folder / question.file_name("csv")).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([question.shown, *rows])


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_right_files_are_equal(data, results):
    report = verify(data, results)
    assert report.is_equal
    assert report.differences == ()
    assert [check.name for check in report.answers] == list(builtin())
    assert (report.answers[0].rows_expected, report.answers[0].rows_found) == (31, 31)


@pytest.mark.parametrize(
    "damage",
    [
        ("results_query_1.csv", "t07,82.075\n", "t07,82.076\n", "expected t07, 82.075 – not there"),
        ("results_query_1.csv", "t07,82.075\n", "t07,82.0750\n", "unexpected: t07, 82.0750"),
        ("results_query_1.csv", "t07,82.075\n", "", "expected t07, 82.075 – not there"),
        ("results_query_1.csv", "t07,82.075\n", "t07,82.075\nt07,82.075\n", "unexpected: t07, 82.075"),
        ("results_query_1.csv", "t07,82.075\n", "t07,82.075,\n", "1 rows without exactly 2 fields"),
        ("results_query_1.csv", "t07,82.075\n", "t07\n", "1 rows without exactly 2 fields"),
        ("results_query_1.csv", "t07,82.075\n", "t07,82.075\na,b,c,d\n", "1 rows without exactly 2 fields"),
        ("results_query_1.csv", "t00,75.075\nt01,76.075\n", "t01,76.075\nt00,75.075\n",
         "rows are right but not in the required order"),
        ("results_query_1.csv", "final_amount", "amount",
         "the header must be transaction_id,final_amount and is transaction_id,amount"),
        ("results_query_2_1.csv", "Espresso,1\n", "Espresso,1.0\n", "unexpected: 2024-03, Espresso, 1.0"),
        ("results_query_2_2.csv", ",7,70.5", ",7,70.50", "expected 2024-03, 7, 70.5 – not there"),
        ("results_query_3.csv", "2024-H2,9,75.075", "2024-H1,9,75.075", "unexpected: 2024-H1, 9, 75.075"),
        ("results_query_4.csv", "1990-01-01", "1990-01-02", "unexpected: North, 1990-01-02"),
        ("results_query_4.csv", "North,\n", "", "expected North,  – not there"),
    ],
)  # fmt: skip
def test_damage_is_found_and_named(data, results, damage):
    file, old, new, difference = damage
    replace(results / file, old, new)
    report = verify(data, results)
    assert not report.is_equal
    assert f"{file}: {difference}" in report.differences
    assert [check.file for check in report.answers if not check.is_equal] == [file]


def test_a_missing_or_unreadable_file_is_a_difference(data, results):
    results.joinpath("results_query_2_1.csv").unlink()
    results.joinpath("results_query_2_2.csv").write_bytes(b"")
    results.joinpath("results_query_3.csv").write_bytes(b"\xff\xfe\x00")
    report = verify(data, results)
    assert [check.difference_count for check in report.answers] == [0, 1, 1, 1, 0]
    assert "results_query_2_1.csv: not there" in report.differences


def test_many_differences_are_counted_but_not_all_shown(data, results):
    write_answers(results, {"1": [(f"x{n}", "1.0") for n in range(100)]})
    check = verify(data, results).answers[0]
    assert check.difference_count == 131
    assert len(check.differences) == 20


def test_a_missing_results_folder_is_refused(data, tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        verify(data, tmp_path / "nowhere")


def test_names_with_commas_quotes_and_newlines_compare_equal(shop, tmp_path):
    for store, name in (("5", "A, B"), ("6", 'the "C"'), ("7", "D\nE")):
        shop.add("stores", store_id=store, store_name=name)
        shop.sell(store_id=store, user_id="1")
    data = shop.write()
    write_answers(tmp_path / "results", expected_answers(data, Parameters()))
    assert verify(data, tmp_path / "results").is_equal


SUMMARY = {
    "questions": {"years": [2024, 2025], "hours": ["06:00:00", "23:00:00"], "min_amount": "75", "top": 3},
    "tables": {
        "transactions": {"read": 32, "used": 31, "rejected": 1},
        "transaction_items": {"read": 2, "used": 2, "rejected": 0},
        "users": {"read": 2, "used": 2, "rejected": 0},
        "stores": {"read": 2, "used": 2, "rejected": 0},
        "menu_items": {"read": 2, "used": 2, "rejected": 0},
    },
    "unmatched": {"stores": 1, "menu_items": 1, "users": 1},
}


def summarize(results, **changes):
    results.joinpath("summary.json").write_text(json.dumps(SUMMARY | changes))


def test_a_right_summary_is_equal(data, results):
    summarize(results)
    report = verify(data, results)
    assert report.is_equal, report.differences
    assert len(report.accounting) == 5 * 3 + 3


@pytest.mark.parametrize("key", ["read", "used", "rejected"])
def test_rows_that_do_not_add_up_are_a_difference(data, results, key):
    wrong = SUMMARY["tables"]["transactions"] | {key: 30}
    summarize(results, tables=SUMMARY["tables"] | {"transactions": wrong})
    report = verify(data, results)
    assert not report.is_equal
    assert any(f"rows of transactions {key}: expected" in line for line in report.differences)


@pytest.mark.parametrize("table", ["stores", "menu_items", "users"])
def test_a_wrong_number_of_unmatched_ids_is_a_difference(data, results, table):
    summarize(results, unmatched=SUMMARY["unmatched"] | {table: 0})
    assert verify(data, results).differences == (
        f"summary.json: ids not found in {table}: expected 1, found 0",
    )


def test_the_questions_come_from_the_summary_unless_given(data, results):
    asked = Parameters(min_amount="100", top=1)
    write_answers(results, expected_answers(data, asked))
    assert not verify(data, results).is_equal
    assert verify(data, results, asked).is_equal
    summarize(results, questions=SUMMARY["questions"] | {"min_amount": "100", "top": 1}, unmatched={})
    assert verify(data, results).is_equal
    assert not verify(data, results, Parameters()).is_equal


def test_without_a_summary_the_questions_come_from_the_settings(data, results, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("[questions]\nmin_amount = '100'\ntop = 1\n")
    command = [str(data), str(results), "--config", str(config)]
    write_answers(results, expected_answers(data, Parameters(min_amount="100", top=1)))
    assert CliRunner().invoke(app, command).exit_code == 0
    summarize(results, unmatched={})
    assert isinstance(CliRunner().invoke(app, command).exception, Difference)


@pytest.mark.parametrize("content", ["{", "[]", '{"questions": {"years": [2024]}}', '{"tables": 3}'])
def test_an_invalid_summary_is_a_difference(data, results, content):
    results.joinpath("summary.json").write_text(content)
    report = verify(data, results)
    assert not report.is_equal
    assert [figure.name for figure in report.accounting] == ["summary.json"]
