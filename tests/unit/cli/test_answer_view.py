"""Answers in a terminal: whole figures at every width, and plain text in a pipe."""

import io
import re
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pytest
from rich.cells import cell_len
from rich.console import Console

from kopitiam.cli.delivery import MOST_JSON_GROUPS, MOST_JSON_LISTED, answers_as_json, show_answers
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from made_answers import MadeAnswers, answers_to, sales, small_answers

WIDTHS = [40, 80, 120]
LARGEST = "RM 99,999,999,999,999.9999"
SUMMARY = RunSummary(
    QuestionSet.of_catalog(), {"users": RowCount(33_973, 3)}, {"stores": 0, "users": 2}, {}, 1.5
)
BAD = [Rejected("users/users.csv", 7, "birthdate: 'x' is not a date", "1,x")]
FIGURES = (
    "4 in all",
    "RM 12,055,639.335",
    "2024-01",
    "3,031",
    "Espresso",
    "RM 12,055,387.76",
    "RM 115,922.885",
    "1990-01-01",
    "1,009",
    "empty",
)


def shown(answers, width=80, *, terminal=True, summary=SUMMARY, examples=BAD, out=None, **more):
    file = io.StringIO()
    colours = "standard" if terminal else "auto"
    console = Console(file=file, width=width, force_terminal=terminal, color_system=colours, **more)
    show_answers(answers, summary, examples, out, console)
    return file.getvalue()


def plain(answers, width=80, **more):
    return re.sub("\x1b\\[[0-9;]*m", "", shown(answers, width, no_color=True, **more))


@pytest.mark.parametrize("width", WIDTHS)
def test_every_answer_is_shown_with_its_exact_figures(width):
    text = " ".join(plain(small_answers(), width).split())
    for question in builtin().values():
        assert f"Q{question.name.replace('_', '.')} {question.title}" in text
    assert all(figure in text for figure in FIGURES)
    assert "33,976 rows read = 33,973 used + 3 rejected · unmatched ids: 2 users · 1.5 s" in text
    assert "users/users.csv, line 7: birthdate: 'x' is not a date" in text
    assert "… 2 more" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width):
    text = plain(small_answers("G Coffee @ Alam Tun Hussein Onn", "Iced Matcha Latte, large"), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_a_figure_is_never_cut(width):
    tpv = [("2024-H1", 1, "A store with a long name", Decimal("99999999999999.9999"), True)]
    profit = [("2024-01", 1, "A product with a long name", Decimal("99999999999999.9999"), True)]
    text = plain(MadeAnswers({"2_2": profit, "3": tpv}), width)
    assert text.count(LARGEST) == 2


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_of_1024_characters_is_shortened(terminal):
    text = plain(small_answers("S" * 1024, "I" * 1024), width=120, terminal=terminal)
    assert max(map(len, text.splitlines())) <= 120
    assert f"{'S' * 59}…" in text
    assert [line.split() for line in text.splitlines() if "I" * 59 in line] == [
        ["2024-01", f"{'I' * 59}…", "3,031", "█" * 30],
        ["2024-02", f"{'I' * 59}…", "RM", "70.50"],
    ]


def test_bars_are_as_long_as_their_figures_allow():
    customers = [(1, "North", n, n, date(1990, 1, n), 80 // n, True, True) for n in (1, 2, 4)]
    lines = plain(MadeAnswers({"4": customers})).splitlines()
    bars = [line.count("█") for line in lines if "1990-01-" in line]
    assert bars == [30, 15, 7]


def test_a_narrow_terminal_shows_no_bars():
    assert "█" in plain(small_answers(), 80)
    assert "█" not in plain(small_answers(), 20)


def test_an_ascii_terminal_gets_ascii_bars():
    file = io.TextIOWrapper(io.BytesIO(), "ascii", errors="replace")
    show_answers(small_answers(), SUMMARY, [], None, Console(file=file, width=80, force_terminal=True))
    file.flush()
    assert "###" in file.buffer.getvalue().decode()


def test_a_pipe_gets_no_control_characters_and_whole_lines():
    text = shown(small_answers(), 40, terminal=False)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
    assert "rows read = 33,973 used + 3 rejected · unmatched ids: 2 users · 1.5" in text
    assert any("Espresso  RM 12,055,387.76" in line for line in text.splitlines())


def test_no_color_is_respected(monkeypatch):
    assert "\x1b[36m" in shown(small_answers())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in shown(small_answers())


@pytest.mark.parametrize(
    ("evil", "seen"),
    [("\x1b[31mred", "�[31mred"), ("bell\x07", "bell�"), ("back\rward", "back�ward"), ("a\nb", "a�b")],
)
def test_names_cannot_control_the_terminal(evil, seen):
    text = shown(small_answers(evil, evil), terminal=False, examples=[replace(BAD[0], reason=evil)])
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
    assert text.count(seen) >= 4


def test_large_purchases_are_shown_as_a_histogram():
    text = plain(MadeAnswers({"1": sales("75", "75", "76.5", "99")}))
    assert "from RM 74.00  2  ██████████████████████████████" in text
    assert "4 in all · sum RM 325.50 · median RM 75.00 · largest RM 99.00" in text


def test_an_answer_without_rows_says_so():
    assert plain(MadeAnswers()).count("no rows") == len(builtin())


def test_long_answers_are_cut_and_say_so():
    products = [(f"{2000 + n // 12}-{n % 12 + 1:02d}", 1, "Latte", n, True) for n in range(130)]
    text = plain(MadeAnswers({"2_1": products}))
    assert "the first 120 of 130" in text
    assert text.count("Latte") == 120


def test_kept_files_are_named(tmp_path):
    text = plain(small_answers(), out=tmp_path)
    assert f"Answers are in {tmp_path}\n" in text
    assert f"Look at them in {tmp_path / 'report.html'}\n" in text
    assert f"Rejected rows are in {tmp_path / 'rejected.csv'}\n" in text
    assert "Use --out to keep the rejected rows" in plain(small_answers())


def test_provisional_answers_say_how_much_they_cover():
    summary = replace(SUMMARY, coverage=Coverage(500, 800, 1000))
    assert "provisional: 500 rows of 1,000 (50%)" in plain(small_answers(), summary=summary)


# -- any question


def lines(answers, width=100, **more):
    return plain(answers, width, examples=[], **more).splitlines()


BY_HOUR = """
name    = "sales_by_hour"
title   = "Sales by hour and store"
from    = "transactions"
by      = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)", share = "ratio(count(user_id), count(*))" }
columns = ["hour", "store_name", "revenue", "purchases", "share"]
"""
HOURS = [
    (6, 1, "North", Decimal("1500.5"), 12, Decimal("0.3333"), True),
    (6, 2, None, None, 0, None, False),
    (7, 1, "North", Decimal("3000"), 1_012, Decimal("1"), True),
]


def test_an_own_question_is_shown_by_its_name_and_title_with_all_its_measures():
    assert lines(answers_to(BY_HOUR, HOURS))[:6] == [
        "sales_by_hour  Sales by hour and store",
        "    store_name      revenue  purchases   share  ",
        "  6",
        "    North       RM 1,500.50         12  0.3333  ███████████████",
        "    empty             empty          0   empty  ",
        "  7",
    ]


def test_times_are_grouped_under_names():
    monthly = """
name    = "monthly"
title   = "Monthly"
from    = "transactions"
by      = { month = "year_month(created_at)", store_id = "store_id", paid = "payment_method_id" }
measure = { revenue = "sum(final_amount)" }
columns = ["month", "store_name", "method_name", "revenue"]
"""
    rows = [
        ("2024-01", 1, "North", 1, "Cash", Decimal(3), True, True),
        ("2024-01", 2, "North", 1, "Cash", Decimal(6), True, True),
        ("2024-02", 1, "North", 1, "Cash", Decimal(3), True, True),
    ]
    assert [line.rstrip(" █") for line in lines(answers_to(monthly, rows))[1:6]] == [
        "  North · Cash",
        "    2024-01  RM 3.00",
        "    2024-02  RM 3.00",
        "  North · Cash",  # another store of the same name
        "    2024-01  RM 6.00",
    ]


TOTALS = """
name    = "totals"
title   = "Totals"
from    = "transactions"
measure = { {measures} }
columns = [{columns}]
"""


def totals(row, **measures):
    named = ", ".join(f'{name} = "{text}"' for name, text in measures.items())
    columns = ", ".join(f'"{name}"' for name in measures)
    return answers_to(TOTALS.replace("{measures}", named).replace("{columns}", columns), [row])


def test_a_single_group_has_no_names():
    assert lines(totals((7,), purchases="count(*)"))[1] == f"  7  {'█' * 30}"


def test_a_measure_that_is_empty_everywhere_has_no_bar():
    assert lines(totals((None,), average="avg(final_amount)"))[1].rstrip() == "  empty"


def test_measures_that_are_no_figures_are_listed_in_columns():
    shown = lines(
        totals(
            (datetime(2024, 1, 31, 22, 59, 59), date(2024, 1, 31), False, "2024-01"),
            last="max(created_at)",
            day="min(date(created_at))",
            known="max(user_id is null)",
            month="max(year_month(created_at))",
        )
    )
    assert shown[1].split() == ["last", "day", "known", "month"]
    assert shown[2].split() == ["2024-01-31", "22:59:59", "2024-01-31", "no", "2024-01"]


LISTED = """
name    = "listed"
title   = "Listed"
from    = "transactions"
columns = ["transaction_id", "store_name", "created_at"]
"""


def test_rows_without_figures_are_listed_in_columns_up_to_a_bound():
    rows = [(f"t{n:02}", datetime(2024, 1, 1, 0, 0, n), 1, "North", True) for n in range(30)]
    shown = lines(answers_to(LISTED, rows))
    assert shown[1] == "  the first 10 of 30"
    assert shown[2].split() == ["transaction_id", "store_name", "created_at"]
    assert shown[3] == "  t00             North       2024-01-01 00:00:00"
    assert sum("North" in line for line in shown) == 10
    assert max(cell_len(line) for line in lines(answers_to(LISTED, rows), 30)) <= 40


HISTOGRAM = """
name    = "baskets"
title   = "Baskets"
from    = "transaction_items"
by      = { transaction_id = "transaction_id" }
measure = { items = "sum(quantity)" }
columns = ["transaction_id", "items"]
chart   = { mark = "histogram", x = "items", y = "count" }
"""


def test_a_histogram_of_counts_has_no_money():
    shown = lines(answers_to(HISTOGRAM, [("a", 1), ("b", 2), ("c", 2), ("d", None)]))
    assert shown[1].startswith("  from 1  1  ███████████████")
    assert "3 in all · sum 5 · median 2 · largest 2 · 1 without a figure" in shown[3]


def test_a_right_to_left_name_does_not_reverse_the_figure_beside_it():
    name = "קפה 5"
    controls = f"\u2068A\ufffd{name}\ufffd\u2069"
    for store, seen in ((name, f"\u2068{name}\u2069"), (f"A\u202e{name}\u200f", controls)):
        text = plain(small_answers(store, store), width=200)
        assert text.count(seen) == 4
        assert "\u202e" not in text
        assert "\u200f" not in text
        for line in text.splitlines():
            if name in line and "RM" in line:
                isolated = line.index("\u2068"), line.index("\u2069")
                assert not isolated[0] < line.index("RM") < isolated[1]


def test_left_to_right_names_are_shown_unchanged():
    assert "\u2068" not in plain(small_answers("Café", "拿铁"))


def test_isolates_have_no_width():
    shown = [line for line in lines(small_answers("A", "קפה")) if "2024-0" in line]
    assert [cell_len(line.rstrip(" █▏▎▍▌▋▊▉")) for line in shown] == [21, 21, 37, 37]


def test_json_has_the_first_rows_of_lists_and_a_bounded_number_of_groups():
    products = [(f"{n:04d}-01", 1, "Latte", n, True) for n in range(1, 1_200)]
    content = answers_as_json(MadeAnswers({"1": sales(*["75"] * 30), "2_1": products}), SUMMARY)
    assert len(content["answers"]["1"]) == MOST_JSON_LISTED == 10
    assert len(content["answers"]["2_1"]) == MOST_JSON_GROUPS == 1_000
    assert content["answers"]["3"] == []
    assert content["answers"]["1"][0] == {"transaction_id": "sale-0000", "final_amount": "75.0000"}


def test_json_has_every_column_of_an_own_question():
    content = answers_as_json(answers_to(BY_HOUR, HOURS), SUMMARY)
    assert content["answers"]["sales_by_hour"][1] == {
        "hour": 6,
        "store_id": 2,
        "store_name": None,
        "revenue": None,
        "purchases": 0,
        "share": None,
        "store_is_matched": False,
    }
