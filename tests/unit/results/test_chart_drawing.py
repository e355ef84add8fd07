"""Rendered charts: bars to scale, exact texts, order, and captions about rows that are left out."""

import random
from collections import defaultdict
from datetime import date
from decimal import Decimal

import pytest

from drawn_charts import Chart
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.cells import ringgit
from kopitiam.results.charts.canvas import WIDTH
from kopitiam.results.charts.drawing import Drawing, NoChart, draw
from made_answers import MadeAnswers, answers_to, sales, small_answers

SALES = 'name = "q"\ntitle = "Sales"\nfrom = "transactions"\n'
HOURS = 'by = { hour = "hour(created_at)", store_id = "store_id" }\n'
HOURLY = (
    SALES
    + HOURS
    + 'measure = { revenue = "sum(final_amount)" }\ncolumns = ["hour", "store_name", "revenue"]\n'
)


def amount(units):
    return Decimal(units) / 10_000


@pytest.fixture
def render(renderer):
    def rendered(answers, name="q"):
        drawing = draw(answers, answers.question_set.by_name[name])
        assert isinstance(drawing, Drawing), drawing
        return Chart(renderer.svg(drawing))

    return rendered


# -- the questions of the catalog


def test_bars_are_as_long_as_their_figures_and_carry_them_exactly(render):
    tpv = [("2024-H1", n, f"Store {n}", Decimal(100 * n), True) for n in (1, 2, 4)]
    chart = render(MadeAnswers({"3": tpv}), "3")
    one, two, four = (chart.mark(store_name=f"Store {n}").width for n in (1, 2, 4))
    assert (two, four) == (pytest.approx(2 * one, abs=0.1), pytest.approx(4 * one, abs=0.1))
    assert {"Store 1 · RM 100.00", "Store 4 · RM 400.00"} <= set(chart.words)


def test_months_are_in_order_and_each_product_has_a_colour(render):
    months = [f"2024-{n:02d}" for n in range(1, 13)]
    best = [(month, n % 3, f"Item {n % 3}", 1000 + n, True) for n, month in enumerate(months)]
    chart = render(MadeAnswers({"2_1": best}), "2_1")
    assert [mark.told("year_month_created_at") for mark in sorted(chart.marks, key=lambda m: m.top)] == months
    colours = {mark.told("item_name"): mark.colour for mark in chart.marks}
    assert (len(colours), len(set(colours.values()))) == (3, 3)
    assert "Item 1 · 1,001" in chart.words


def test_customers_are_ordered_by_rank_with_their_birthdates(render):
    chart = render(small_answers(), "4")
    marks = sorted(chart.marks, key=lambda mark: mark.top)
    assert [(m.told("store_name"), m.told("rank"), m.told("purchases")) for m in marks] == [
        ("North", "1", "1,009"),
        ("North", "2", "8"),
        ("South", "1", "2"),
    ]
    assert {"1990-01-01 · 1,009", "empty · 8", "rank 1", "rank 2"} <= set(chart.words)


def test_bins_are_as_high_as_their_counts(render):
    chart = render(MadeAnswers({"1": sales("75", "75", "75", "99")}), "1")
    heights = [mark.height for mark in sorted(chart.marks, key=lambda mark: mark.left)]
    assert heights[0] == pytest.approx(3 * heights[-1], abs=0.1)
    assert set(heights[1:-1]) == {0.0}
    assert chart.marks[0].told("final_amount") == "RM 74.00 to below RM 76.00"
    assert "4 rows · sum RM 324.00 · smallest RM 75.00 · median RM 75.00 · largest RM 99.00" in chart.words


def test_the_last_bar_of_a_histogram_can_be_open_and_is_labelled(render):
    amounts = [str(75 + number % 12) for number in range(300)]
    chart = render(MadeAnswers({"1": sales(*amounts, "140", "99999999")}), "1")
    last = max(chart.marks, key=lambda mark: mark.left)
    assert last.is_dashed
    assert sum(mark.is_dashed for mark in chart.marks) == 1
    assert last.told("final_amount") == "RM 86.00 and more"
    assert "RM 86.00 and more" in chart.words
    assert "87" not in chart.words
    before = sorted(mark.left for mark in chart.marks)
    assert before[-1] - before[-2] > before[1] - before[0] + 5, "there is a gap before it"


def test_a_histogram_without_outliers_has_no_open_bar(render):
    chart = render(MadeAnswers({"1": sales("75", "79.99", "80", "93.5", "99.9")}), "1")
    assert not any(mark.is_dashed for mark in chart.marks)
    assert "100" in chart.words


# -- any question


def hourly(stores, hours=range(6, 24)):
    dice = random.Random(5)
    return [(h, s, f"Store {s:03d}", amount(dice.randrange(1, 10**9)), True) for h in hours for s in stores]


def test_parts_are_stacked_to_the_exact_whole_and_the_small_ones_are_added_up(render):
    rows = hourly(range(14))
    chart = render(
        answers_to(HOURLY + 'chart = { mark = "bar", x = "hour", y = "revenue", color = "store_name" }', rows)
    )
    wholes, figures = defaultdict(Decimal), {}
    for hour, _, store, revenue, _ in rows:
        wholes[hour] += revenue
        figures[str(hour), store] = revenue
    named = {mark.told("store_name") for mark in chart.marks} - {"others"}
    assert len(named) == 10
    peaks = {store: max(figures[str(h), store] for h in range(6, 24)) for _, _, store, *_ in rows}
    assert named == set(sorted(peaks, key=peaks.__getitem__)[-10:])
    scale = None
    for hour in range(6, 24):
        parts = [mark for mark in chart.marks if mark.told("hour") == str(hour)]
        for mark in parts:
            store = mark.told("store_name")
            left = wholes[hour] - sum(figures[str(hour), name] for name in named)
            exact = left if store == "others" else figures[str(hour), store]
            assert mark.told("revenue") == ringgit(exact)
        height = sum(mark.height for mark in parts)
        scale = scale or height / float(wholes[hour])
        assert height / float(wholes[hour]) == pytest.approx(scale, rel=0.01)
    assert f"{18 * 4} of {18 * 14} rows are added up as others." in chart.words
    assert {"others", *named} <= set(chart.words)


@pytest.mark.parametrize("mark", ["bar", "area"])
def test_a_stack_of_others_only_is_drawn(render, mark):
    """No store with a series of its own has sales at nine."""
    rows = [(8, n, f"Store {n:03d}", Decimal(1000 + n), True) for n in range(10)]
    rows += [(hour, n, f"Store {n:03d}", Decimal(hour), True) for hour in (8, 9) for n in range(50, 100)]
    text = HOURLY + f'chart = {{ mark = "{mark}", x = "hour", y = "revenue", color = "store_name" }}'
    chart = render(answers_to(text, sorted(rows)))
    assert chart.mark(hour="9", store_name="others").told("revenue") == ringgit(Decimal(9 * 50))
    assert chart.mark(hour="8", store_name="others").told("revenue") == ringgit(Decimal(8 * 50))
    assert "9" in chart.words


def test_stacked_names_have_the_exact_sum_beside_them(render):
    text = SALES + 'by = { store_id = "store_id", payment_method_id = "payment_method_id" }\n'
    text += 'measure = { paid = "sum(final_amount)" }\ncolumns = ["store_name", "method_name", "paid"]\n'
    text += 'chart = { mark = "bar", x = "store_name", y = "paid", color = "method_name" }'
    rows = [
        (s, f"Store {s}", m, f"Method {m}", amount(10_000 * s + m), True, True)
        for s in range(9)
        for m in range(5)
    ]
    words = render(answers_to(text, rows)).words
    assert {ringgit(sum(amount(10_000 * s + m) for m in range(5))) for s in range(9)} <= set(words)


def test_figures_that_do_not_add_up_are_not_stacked(render):
    text = (
        SALES + HOURS + 'measure = { mean = "avg(final_amount)" }\ncolumns = ["hour", "store_name", "mean"]\n'
    )
    text += 'chart = { mark = "bar", x = "hour", y = "mean", color = "store_name" }'
    rows = [(h, s, f"Store {s}", amount(10_000 + h * s), True) for h in range(20) for s in range(1, 13)]
    chart = render(answers_to(text, rows))
    assert len(chart.marks) == 120
    assert len({mark.left for mark in chart.marks}) == 1, "every bar begins at zero"
    assert "The chart shows 120 of 240 rows: of each hour at most 10, the largest by mean." in chart.words
    for hour in range(1, 12):
        drawn = {mark.told("store_name") for mark in chart.marks if mark.told("hour") == str(hour)}
        assert drawn == {f"Store {s}" for s in range(3, 13)}, "the largest"


def test_a_line_has_a_point_for_each_figure_and_a_gap_for_each_missing_one(render):
    text = SALES + 'by = { month = "year_month(created_at)" }\nmeasure = { revenue = "sum(final_amount)" }\n'
    rows = [(f"2024-{n:02d}", amount(10_000 * n)) for n in range(1, 13) if n != 7]
    chart = render(answers_to(text + 'columns = ["month", "revenue"]', rows))
    assert [mark.told("revenue") for mark in chart.marks] == [ringgit(figure) for _, figure in rows]
    assert "2024-07" in chart.words, "the month has its place"
    lines = [path.get("d", "") for path in chart.root.iter() if path.get("class") == "s-bar"]
    assert [line.count("M") for line in lines] == [2], "and the line is broken there"


def test_a_heat_map_has_steps_of_round_width(render):
    text = HOURLY + 'chart = { mark = "rect", x = "hour", y = "store_name", color = "revenue" }'
    rows = [(h, s, f"Store {s}", Decimal(100 * h + s), True) for h in range(8, 12) for s in range(5)]
    chart = render(answers_to(text, rows))
    steps = [word.removeprefix("from ") for word in chart.words if word.startswith("from ")]
    assert steps == [ringgit(Decimal(bound)) for bound in range(800, 1101, 50)]
    assert chart.mark(hour="8", store_name="Store 0").colour == "h0"
    assert chart.mark(hour="11", store_name="Store 4").colour == "h6"
    assert len(chart.marks) == len(rows)


def test_an_area_is_stacked_and_has_hover_texts(render):
    text = HOURLY + 'chart = { mark = "area", x = "hour", y = "revenue", color = "store_name" }'
    rows = hourly(range(3), range(8, 12))
    chart = render(answers_to(text, rows))
    assert {mark.told("revenue") for mark in chart.marks} == {ringgit(row[3]) for row in rows}


def test_a_point_is_drawn_for_each_row(render):
    text = (
        SALES + 'by = { store_id = "store_id" }\nmeasure = { n = "count(*)", mean = "avg(final_amount)" }\n'
    )
    text += 'columns = ["store_name", "n", "mean"]\n'
    text += 'chart = { mark = "point", x = "n", y = "mean", color = "store_name" }'
    rows = [(s, f"Store {s}", 1000 * s, amount(123_456 + s), True) for s in range(1, 30)]
    chart = render(answers_to(text, rows))
    assert sorted(mark.told("mean") for mark in chart.marks) == sorted(ringgit(row[3]) for row in rows)
    assert {mark.told("store_name") for mark in chart.marks} == {row[1] for row in rows}


@pytest.mark.parametrize("amounts", [["0"], ["-5", "10"], ["-5"], ["0.0001"], ["99999999999999", "0.0001"]])
def test_any_figure_can_be_drawn(render, amounts):
    tpv = [("2024-H1", n, f"Store {n}", Decimal(text), True) for n, text in enumerate(amounts)]
    assert len(render(MadeAnswers({"3": tpv}), "3").marks) == len(amounts)
    assert any(mark.height for mark in render(MadeAnswers({"1": sales(*amounts)}), "1").marks)


# -- what is left out


def test_an_answer_without_rows_or_figures_has_no_chart():
    empty = MadeAnswers()
    assert draw(empty, empty.question_set.by_name["3"]) == NoChart("No rows.", 0)
    nulls = MadeAnswers({"3": [("2024-H1", 1, "North", None, True)]})
    assert draw(nulls, nulls.question_set.by_name["3"]) == NoChart(
        "Nothing to draw: tpv is empty in every row.", 1
    )


def test_rows_without_a_figure_are_mentioned_in_the_caption(render):
    tpv = [("2024-H1", 1, "North", None, True), ("2024-H1", 2, "South", Decimal(5), True)]
    words = render(MadeAnswers({"3": tpv}), "3").words
    assert "1 row has no tpv." in words
    assert "North · empty" in words


def test_many_customers_are_bounded_by_their_rank(render):
    ranked = [(1, "North", rank, rank, date(1990, 1, 1), 90 - rank, True, True) for rank in range(60, 0, -1)]
    chart = render(MadeAnswers({"4": ranked}, QuestionSet.of_catalog(Parameters(top=60))), "4")
    assert {mark.told("rank") for mark in chart.marks} == {str(rank) for rank in range(1, 11)}
    assert "The chart shows 10 of 60 rows: of each store_name at most 10, the first by rank." in chart.words


def test_a_line_of_many_days_shows_the_first_and_says_so(render):
    text = SALES + 'by = { day = "date(created_at)" }\nmeasure = { revenue = "sum(final_amount)" }\n'
    days = [date.fromordinal(730_000 + n) for n in range(2_500)]
    rows = [(day, Decimal(n)) for n, day in enumerate(days)]
    chart = render(answers_to(text + 'columns = ["day", "revenue"]', rows))
    assert "The chart shows 2,000 of 2,500 rows: the first ones." in chart.words


def test_a_line_leaves_out_small_series_and_never_adds_them_up(render):
    text = HOURLY + 'chart = { mark = "line", x = "hour", y = "revenue", color = "store_name" }'
    rows = [(h, s, f"Store {s:02d}", Decimal(100 * s + h), True) for h in range(8, 12) for s in range(13)]
    chart = render(answers_to(text, rows))
    assert {mark.told("store_name") for mark in chart.marks} == {f"Store {s:02d}" for s in range(3, 13)}
    assert "The chart shows 40 of 52 rows: the 10 store_name with the highest peaks." in chart.words


def test_rows_of_one_cell_are_added_up_only_if_figures_add_up(render):
    by = 'by = { hour = "hour(created_at)", store_id = "store_id", user_id = "user_id" }\n'
    chart = 'chart = { mark = "rect", x = "hour", y = "store_id", color = "m" }'
    rows = [(h, s, u, Decimal("0.0001"), True)[:4] for h in (8, 9) for s in (1, 2) for u in range(30)]
    added = answers_to(
        SALES + by + 'measure = { m = "sum(final_amount)" }\ncolumns = ["hour", "store_id", "m"]\n' + chart,
        rows,
    )
    assert {mark.told("m") for mark in render(added).marks} == {"RM 0.003"}
    averaged = answers_to(
        SALES + by + 'measure = { m = "avg(final_amount)" }\ncolumns = ["hour", "store_id", "m"]\n' + chart,
        rows,
    )
    no_chart = draw(averaged, averaged.question_set.by_name["q"])
    assert isinstance(no_chart, NoChart)
    assert no_chart.reason == (
        "The chart cannot be drawn: several rows share hour and store_id, and m does not add up."
    )


def test_empty_keys_are_drawn(render):
    text = SALES + 'by = { user_id = "user_id" }\nmeasure = { n = "count(*)" }\ncolumns = ["birthdate", "n"]'
    rows = [(u, None if u % 2 else date(1990, 1, u + 1), 10 + u, True) for u in range(6)]
    chart = render(answers_to(text, rows))
    assert len(chart.marks) == 6
    assert [word for word in chart.words if word.startswith("empty")] == [
        "empty (user_id 1)",
        "empty (user_id 3)",
        "empty (user_id 5)",
    ]


def test_stores_with_one_name_show_their_ids(render):
    tpv = [("2024-H1", number, "North", Decimal(number), True) for number in (1, 9)]
    words = render(MadeAnswers({"3": tpv}), "3").words
    assert {"North (store_id 1) · RM 1.00", "North (store_id 9) · RM 9.00"} <= set(words)


def test_everything_is_within_the_frame(render):
    answers = small_answers(store="G Coffee @ " + "long " * 200, item="A very long latte " * 50)
    for name in answers.tables:
        chart = render(answers, name)
        assert chart.width == WIDTH
        for mark in chart.marks:
            assert mark.left >= 0
            assert mark.left + mark.width <= chart.width
            assert mark.top + mark.height <= chart.height
        assert all(0 <= text.y <= chart.height for text in chart.texts)


def test_a_chart_has_a_description(render):
    chart = render(small_answers(), "3")
    assert chart.root.get("role") == "img"
    assert chart.root.get("aria-label") == (
        "Total payment value per half-year and store. tpv by year_half_created_at, by store_name."
    )
