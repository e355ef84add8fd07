"""Charts as still pictures: bars as long as their figures, from the same files as the moving ones."""

import re
from decimal import Decimal
from xml.etree import ElementTree

import pytest

from kopitiam.results.charts import CHARTS, chart_rows, chart_spec
from kopitiam.results.charts.svg import CHANNELS, MARKS, WIDTH, still_chart
from made_answers import MadeAnswers, sales, small_answers


def drawn(name, answers):
    return ElementTree.fromstring(still_chart(chart_spec(name), chart_rows(name, answers)))


def bars(picture):
    """What each bar says, and its size."""
    found = [(group.findtext("title"), group.find("rect")) for group in picture.iter("g")]
    return [(title, float(rect.get("width")), float(rect.get("height"))) for title, rect in found]


def texts(picture):
    return [text.text for text in picture.iter("text")]


@pytest.mark.parametrize("name", CHARTS)
def test_the_picture_knows_all_that_the_chart_uses(name):
    spec = chart_spec(name)
    layers = [spec, *spec.get("layer", [])]
    assert {channel for layer in layers for channel in layer.get("encoding", {})} <= CHANNELS
    assert {layer["mark"]["type"] for layer in layers if "mark" in layer} <= MARKS


@pytest.mark.parametrize("name", CHARTS)
def test_all_is_within_the_frame(name):
    picture = drawn(name, small_answers(store="G Coffee @ " + "long " * 20, item="A very long latte " * 9))
    _, _, width, height = map(float, picture.get("viewBox").split())
    assert width == WIDTH
    for rect in picture.iter("rect"):
        left, top = float(rect.get("x")), float(rect.get("y"))
        assert 0 <= left <= left + float(rect.get("width")) <= width
        assert 0 <= top <= top + float(rect.get("height")) <= height


def test_bars_are_as_long_as_their_figures():
    tpv = [("2024-H1", n, f"Store {n}", Decimal(100 * n), True) for n in (1, 2, 4)]
    one, two, four = (width for _, width, _ in bars(drawn("q3", MadeAnswers({"3": tpv}))))
    assert (two, four) == (pytest.approx(2 * one, abs=0.2), pytest.approx(4 * one, abs=0.2))


def test_bins_are_as_high_as_their_counts():
    heights = [
        height for _, _, height in bars(drawn("q1", MadeAnswers({"1": sales("75", "75", "75", "99")})))
    ]
    assert heights[0] == pytest.approx(3 * heights[-1], abs=0.2)
    assert set(heights[1:-1]) == {0.0}


def test_bars_carry_exact_figures():
    picture = drawn("q2_profit", small_answers())
    assert "Espresso · RM 12,055,387.76" in texts(picture)
    assert bars(picture)[0][0] == "month: 2024-01, product: Espresso, earned: RM 12,055,387.76"


def test_each_half_year_has_its_colour_and_a_legend():
    picture = drawn("q3", small_answers())
    assert texts(picture)[:2] == ["2024-H1", "2024-H2"]
    colours = [rect.get("class") for group in picture.iter("g") for rect in group.iter("rect")]
    assert colours == ["c0", "c1", "c0"]


def test_axes_have_round_figures():
    tpv = [("2024-H1", 1, "North", Decimal("12055387.76"), True)]
    ticks = [text for text in texts(drawn("q3", MadeAnswers({"3": tpv}))) if re.fullmatch(r"[\d.]+M?", text)]
    assert ticks == ["0", "5M", "10M"]
    customers = [(1, "North", 1, 7, None, 2, True, True)]
    ticks = [text for text in texts(drawn("q4", MadeAnswers({"4": customers}))) if text.isdigit()]
    assert ticks == ["0", "1", "2"]


@pytest.mark.parametrize("amounts", [["0"], ["-5", "10"], ["-5"], ["0.0001"]])
def test_any_figure_can_be_drawn(amounts):
    tpv = [("2024-H1", n, f"Store {n}", Decimal(amount), True) for n, amount in enumerate(amounts)]
    assert len(bars(drawn("q3", MadeAnswers({"3": tpv})))) == len(amounts)
    assert sum(height > 0 for *_, height in bars(drawn("q1", MadeAnswers({"1": sales(*amounts)})))) >= 1


def test_a_long_name_is_shortened_and_told_in_full():
    name = "G Coffee @ " + "Alam " * 20
    labels = [
        text for text in drawn("q3", small_answers(store=name)).iter("text") if text.find("title") is not None
    ]
    assert labels[0].text.endswith("…")
    assert labels[0].findtext("title") == name


@pytest.mark.parametrize(("customers", "shape"), [(3, "chart"), (10, "chart tall")])
def test_a_picture_that_one_page_of_paper_would_make_tiny_says_so(customers, shape):
    ranked = [
        (store, f"Store {store}", rank, rank, None, 20 - rank, True, True)
        for store in range(10)
        for rank in range(1, customers + 1)
    ]
    assert drawn("q4", MadeAnswers({"4": ranked})).get("class") == shape
