"""The real sample against its published answers, by one run of the command."""

import csv
import json
import re
from collections import Counter
from decimal import Decimal
from html import unescape
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kopitiam.questions.catalog import builtin
from oracle import id_of, purchases_by_store, rows_of

TOP = 3
MORE = {  # what the other forms carry beyond the CSV
    "1": set(),
    "2_1": {"item_id", "item_is_matched"},
    "2_2": {"item_id", "item_is_matched"},
    "3": {"store_id", "store_is_matched"},
    "4": {"store_id", "rank", "user_id", "purchases", "store_is_matched", "user_is_matched"},
}


@pytest.fixture(scope="module")
def sample(real_sample) -> Path:
    return real_sample / "input"


@pytest.fixture(scope="module")
def analyzed(kopi, sample, tmp_path_factory):
    out = tmp_path_factory.mktemp("real") / "answers"
    run = kopi("analyze", sample, "--out", out)
    assert run.code == 0, run.stderr
    return run, out


@pytest.fixture(scope="module")
def out(analyzed) -> Path:
    return analyzed[1]


@pytest.fixture(scope="module")
def answers(out, answers_in):
    return answers_in(out)


@pytest.fixture(scope="module")
def published(real_sample):
    def read(name):
        with (real_sample / "expected" / builtin()[name].file_name("csv")).open(
            encoding="utf-8", newline=""
        ) as file:
            return [tuple(row) for row in csv.reader(file)][1:]

    return read


@pytest.mark.parametrize("name", ["1", "2_1", "2_2", "3"])
def test_the_answers_are_the_published_ones(answers, published, name):
    assert Counter(answers[name]) == Counter(published(name))


def test_rows_come_in_the_required_order(answers):
    assert answers["1"] == sorted(answers["1"], key=lambda row: row[0])
    assert answers["2_1"] == sorted(answers["2_1"])
    assert answers["2_2"] == sorted(answers["2_2"])
    assert answers["3"] == sorted(answers["3"], key=lambda row: row[:2])
    assert answers["4"] == sorted(answers["4"])


def test_top_customers_ours_and_published_are_choices_among_the_same_ties(sample, answers, published):
    names = {id_of(row["store_id"]): row["store_name"] for row in rows_of(sample, "stores")}
    born = {id_of(row["user_id"]): row["birthdate"] for row in rows_of(sample, "users")}
    by_tie_rule = Counter()
    for store, purchases in purchases_by_store(list(rows_of(sample, "transactions"))).items():
        ranked = sorted(purchases, key=lambda user, of=purchases: (-of[user], user))
        cutoff = purchases[ranked[TOP - 1]]
        certain = Counter(born[user] for user in ranked if purchases[user] > cutoff)
        tied = Counter(born[user] for user in ranked if purchases[user] == cutoff)
        for rows in (answers["4"], published("4")):
            chosen = Counter(birthdate for name, birthdate in rows if name == names[store])
            assert chosen.total() == TOP
            assert certain <= chosen
            assert chosen - certain <= tied
        by_tie_rule.update((names[store], born[user]) for user in ranked[:TOP])
    assert Counter(answers["4"]) == by_tie_rule


def test_the_independent_check_agrees(sample, out, is_verified):
    assert is_verified(sample, out)


@pytest.mark.parametrize("name", builtin())
def test_json_and_parquet_hold_the_rows_of_the_csv_and_more(out, answers, name):
    columns = builtin()[name].shown
    path = out / builtin()[name].file_name("csv")
    table = pq.read_table(path.with_suffix(".parquet"))
    content = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"), parse_float=Decimal)

    assert set(table.column_names) == set(content["columns"]) == set(columns) | MORE[name]
    assert content["count"] == len(content["rows"]) == len(answers[name])
    assert content["rows_rejected"] == 0
    assert content["unmatched"] == {"stores": 0, "menu_items": 0, "users": 0}
    assert [tuple(str(row[column]) for column in columns) for row in content["rows"]] == answers[name]
    of_json = [tuple(row.values()) for row in content["rows"]]
    of_parquet = [tuple(row.values()) for row in table.to_pylist()]
    assert [tuple(map(str, row)) for row in of_json] == [tuple(map(_as_in_csv, row)) for row in of_parquet]


def _as_in_csv(value):
    if not isinstance(value, Decimal):
        return str(value)
    whole, decimals = f"{value:.4f}".split(".")
    return f"{whole}.{decimals.rstrip('0') or '0'}"


def test_parquet_has_ranks_and_purchases_beside_the_birthdates(out):
    rows = pq.read_table(out / "results_query_4.parquet").to_pylist()
    for store in {row["store_id"] for row in rows}:
        of_store = sorted((row for row in rows if row["store_id"] == store), key=lambda row: row["rank"])
        assert [row["rank"] for row in of_store] == [1, 2, 3]
        order = [(-row["purchases"], row["user_id"]) for row in of_store]
        assert order == sorted(order)


def test_the_terminal_shows_every_answer_and_the_row_counts(analyzed):
    run, out = analyzed
    for answer in builtin().values():
        assert f"Q{answer.name.replace('_', '.')}  {answer.title}" in run.stdout
    assert "33,976 rows read = 33,976 used + 0 rejected · unmatched ids: none" in run.stdout
    assert "Matcha Latte" in run.stdout
    assert "24 in all" in run.stdout
    assert f"Answers are in {out}" in run.stdout


def test_without_a_terminal_nothing_but_the_answers_is_printed(analyzed):
    assert analyzed[0].stderr == ""


def test_the_answer_folder_holds_exactly_the_promised_files(out):
    stems = [Path(answer.file_name("csv")).stem for answer in builtin().values()]
    expected = {f"{stem}.{form}" for stem in stems for form in ("csv", "json", "parquet")}
    assert {file.name for file in out.iterdir()} == expected | {"summary.json", "report.html", "results.xlsx"}


def test_the_report_has_the_figures_of_the_answers(out, answers):
    rows = _cells((out / "report.html").read_text(encoding="utf-8"))
    shown = {tuple(row) for row in rows}
    for month, item, quantity in answers["2_1"]:
        assert (month, item, f"{int(quantity):,}") in shown
    for month, item, profit in answers["2_2"]:
        assert (month, item, _ringgit(profit)) in shown
    for half, store, tpv in answers["3"]:
        assert (half, store, _ringgit(tpv)) in shown
    for store, birthdate in answers["4"]:
        assert any(store in row and birthdate in row for row in rows)
    largest = max(answers["1"], key=lambda row: Decimal(row[1]))
    assert (largest[0], _ringgit(largest[1])) in shown


def _cells(html: str) -> list[list[str]]:
    """Return the cells of the tables of a page."""
    bodies = re.findall(r"<tr>(.*?)</tr>", html)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", body) for body in bodies]
    return [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]


def _ringgit(amount: str) -> str:
    whole, decimals = amount.split(".")
    return f"RM {int(whole):,}.{decimals.ljust(2, '0')}"
