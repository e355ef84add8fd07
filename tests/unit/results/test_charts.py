"""The charts: what goes into them, and the files that they are made of."""

import hashlib
import json
import re
from datetime import date
from decimal import Decimal

import pytest

from kopitiam.contracts.questions import ANSWERS
from kopitiam.results.charts import (
    CHART_OF_ANSWER,
    CHARTS,
    FOLDER,
    chart_config,
    chart_rows,
    chart_spec,
)
from kopitiam.results.charts.rows import MOST_CUSTOMERS, MOST_STORES
from kopitiam.results.reading import AnswerFiles
from made_answers import MadeAnswers, sales, small_answers


def fields(spec):
    """Every field that a spec names, wherever."""
    if isinstance(spec, dict):
        own = {spec["field"]} if isinstance(spec.get("field"), str) else set()
        return own.union(*(fields(part) for part in spec.values()))
    if isinstance(spec, list):
        return set().union(*(fields(part) for part in spec))
    return set()


def test_every_answer_has_its_chart():
    assert list(CHART_OF_ANSWER) == list(ANSWERS)


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_has_a_description_and_one_named_set_of_rows(name):
    spec = chart_spec(name)
    assert spec["data"] == {"name": "rows"}
    assert len(spec["description"]) > 20
    assert "url" not in json.dumps(spec)


@pytest.mark.parametrize("name", CHARTS)
def test_rows_have_every_field_that_the_chart_names_and_are_json(name):
    rows = chart_rows(name, small_answers())
    assert rows
    assert json.loads(json.dumps(rows)) == rows
    for row in rows:
        assert fields(chart_spec(name)) <= set(row)


@pytest.mark.parametrize("name", CHARTS)
def test_no_answer_is_no_rows(name):
    assert chart_rows(name, MadeAnswers()) == []


def test_figures_are_numbers_for_axes_and_exact_text_for_people(tmp_path):
    answers = AnswerFiles.of(small_answers().write(tmp_path))
    first = chart_rows("q2_profit", answers)[0]
    assert (first["profit_sum"], first["exact"]) == (12055387.76, "RM 12,055,387.76")
    assert first["label"] == "Espresso · RM 12,055,387.76"
    assert chart_rows("q2_best", answers)[0]["exact"] == "3,031"
    assert [
        (row["store"], row["year_half_created_at"], row["exact"]) for row in chart_rows("q3", answers)
    ] == [
        ("North", "2024-H1", "RM 115,922.885"),
        ("North", "2024-H2", "RM 12,055,387.76"),
        ("South", "2024-H1", "RM 40.00"),
    ]
    assert [(row["store"], row["rank"], row["label"]) for row in chart_rows("q4", answers)] == [
        ("North", 1, "1990-01-01 · 1,009"),
        ("North", 2, "unknown · 8"),
        ("South", 1, "1980-02-02 · 2"),
    ]


def test_amounts_come_in_bins_that_say_what_they_hold():
    rows = chart_rows("q1", MadeAnswers({"1": sales("75", "79.99", "80", "93.5", "99.9")}))
    assert (rows[0]["amount_from"], rows[0]["amount_to"], rows[0]["purchases"]) == (74.0, 76.0, 1)
    assert rows[0]["amounts"] == "RM 74.00 to below RM 76.00"
    assert sum(row["purchases"] for row in rows) == 5


def test_stores_of_one_name_are_told_apart_by_their_id():
    tpv = [("2024-H1", number, "North", Decimal(number), True) for number in (9, 1)]
    assert [row["store"] for row in chart_rows("q3", MadeAnswers({"3": tpv}))] == [
        "North (store 1)",
        "North (store 9)",
    ]


def test_a_chart_of_many_stores_and_customers_stays_a_picture():
    tpv = [("2024-H1", n, f"Store {n:03d}", Decimal(n), True) for n in range(100)]
    ranks = [(1, "North", rank, rank, date(1990, 1, 1), 5, True, True) for rank in range(1, 50)]
    assert [row["store"] for row in chart_rows("q3", MadeAnswers({"3": tpv}))] == [
        f"Store {n:03d}" for n in range(MOST_STORES)
    ]
    shown = chart_rows("q4", MadeAnswers({"4": ranks}))
    assert [row["rank"] for row in shown] == list(range(1, MOST_CUSTOMERS + 1))


def contrast(one, other):
    def light(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((light(one), light(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#1b1917")])
def test_text_and_bars_stand_out_from_the_ground(theme, ground):
    config = chart_config(theme)
    for colour in (config["axis"]["labelColor"], config["text"]["color"], config["legend"]["labelColor"]):
        assert contrast(colour, ground) >= 7
    for colour in (config["bar"]["color"], *config["range"]["category"]):
        assert contrast(colour, ground) >= 2
    assert len(set(config["range"]["category"])) == 8


def test_the_vendored_files_are_those_that_were_written_down():
    vendor = FOLDER / "vendor"
    told = dict(reversed(line.split()) for line in (vendor / "SHA256SUMS").read_text().splitlines())
    assert told == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in vendor.iterdir()
        if file.name not in {"SHA256SUMS", "README.md", "renew.sh"}
    }
    versions = re.findall(r"(vega[\w-]*)@([\d.]+)", (vendor / "renew.sh").read_text())
    read_me = (vendor / "README.md").read_text()
    assert len(versions) == 3
    for name, version in versions:
        assert f"{name} {version}" in read_me
        assert f"LICENSE.{name}" in told


def test_the_library_is_small_enough_for_a_page():
    import gzip

    files = [*(FOLDER / "vendor").glob("*.js"), FOLDER / "charts.js"]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < 300_000
