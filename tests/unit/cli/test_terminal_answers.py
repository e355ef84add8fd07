"""Answers in a terminal: whole figures at every width, and plain text in a pipe."""

import io
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from rich.cells import cell_len
from rich.console import Console

from kopitiam.cli.terminal import show_answers
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import Rejected
from kopitiam.results.summary import Coverage, RowCount, Summary
from made_answers import MadeAnswers, sales, small_answers

WIDTHS = [40, 80, 120]
LARGEST = "RM 99,999,999,999,999.9999"
SUMMARY = Summary(Questions(), {"users": RowCount(33_973, 3)}, {"stores": 0, "users": 2}, {}, 1.5)
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
    "unknown",
)


def shown(answers, width=80, *, terminal=True, summary=SUMMARY, examples=BAD, out=None, **more):
    file = io.StringIO()
    colours = "standard" if terminal else "auto"
    console = Console(file=file, width=width, force_terminal=terminal, color_system=colours, **more)
    show_answers(answers, summary, examples, out, console)
    return file.getvalue()


def plain(answers, width=80, **more):
    return shown(answers, width, no_color=True, **more).replace("\x1b[1m", "").replace("\x1b[0m", "")


@pytest.mark.parametrize("width", WIDTHS)
def test_every_answer_is_shown_with_its_exact_figures(width):
    text = " ".join(plain(small_answers(), width).split())
    for answer in ANSWERS.values():
        assert f"Q{answer.name.replace('_', '.')} {answer.title}" in text
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


def test_where_there_is_no_room_there_are_no_bars():
    assert "█" in plain(small_answers(), 80)
    assert "█" not in plain(small_answers(), 20)


def test_a_terminal_without_such_letters_gets_plain_ones():
    file = io.TextIOWrapper(io.BytesIO(), "ascii", errors="replace")
    show_answers(small_answers(), SUMMARY, [], None, Console(file=file, width=80, force_terminal=True))
    file.flush()
    assert "###" in file.buffer.getvalue().decode()


def test_a_pipe_gets_no_control_characters_and_whole_lines():
    text = shown(small_answers(), 40, terminal=False)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
    assert "rows read = 33,973 used + 3 rejected · unmatched ids: 2 users · 1.5" in text
    assert any("Espresso  RM 12,055,387.76" in line for line in text.splitlines())


def test_without_colour_there_is_none(monkeypatch):
    assert "\x1b[36m" in shown(small_answers())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in shown(small_answers())


@pytest.mark.parametrize(
    ("evil", "seen"),
    [("\x1b[31mred", "�[31mred"), ("bell\x07", "bell�"), ("back\rward", "back�ward"), ("a\nb", "a�b")],
)
def test_a_name_cannot_do_anything_to_the_terminal(evil, seen):
    text = shown(small_answers(evil, evil), terminal=False, examples=[replace(BAD[0], reason=evil)])
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
    assert text.count(seen) >= 4


def test_of_the_large_purchases_the_shape_is_shown():
    text = plain(MadeAnswers({"1": sales("75", "75", "76.5", "99")}))
    assert "from RM 74.00  2  ██████████████████████████████" in text
    assert "4 in all · sum RM 325.50 · median RM 75.00 · largest RM 99.00" in text


def test_no_rows_are_said_to_be_none():
    assert plain(MadeAnswers()).count("no rows") == len(ANSWERS)


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
