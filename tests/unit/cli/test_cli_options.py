"""Options that commands share: flags override settings, and select the questions."""

import pytest

from kopitiam.cli.options import has_flags, run_arguments, run_parameters, select_questions
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import ConfigError, InputError, QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin


def ask(years=None, hours=None, min_amount=None, top=None, base=None):
    return run_parameters(base or QuestionsSection(), years, hours, min_amount, top)


def test_without_flags_the_settings_apply():
    base = QuestionsSection(years=(2020, 2021), min_amount="10", top=5)
    assert ask(base=base) == Parameters(2020, 2021, min_amount="10", top=5)


def test_each_flag_overrides_its_setting():
    base = QuestionsSection(years=(2020, 2021), min_amount="10", top=5)
    assert ask(top=1, base=base) == Parameters(2020, 2021, min_amount="10", top=1)
    assert ask(min_amount="0", base=base).min_units == 0


@pytest.mark.parametrize(
    ("years", "span"), [("2024", (2024, 2024)), ("2024-2025", (2024, 2025)), ("0001-9998", (1, 9998))]
)
def test_years_are_one_year_or_first_and_last(years, span):
    questions = ask(years=years)
    assert (questions.first_year, questions.last_year) == span


@pytest.mark.parametrize(
    ("hours", "span"),
    [
        ("06:00-23:00", ("06:00:00", "23:00:00")),
        ("06:30:15-23:59:59", ("06:30:15", "23:59:59")),
        ("00:00-23:59:59", ("00:00:00", "23:59:59")),
        ("12:00:00-12:00", ("12:00:00", "12:00:00")),
    ],
)
def test_hours_are_with_or_without_seconds(hours, span):
    questions = ask(hours=hours)
    assert (questions.opening, questions.closing) == span


@pytest.mark.parametrize(
    "years",
    ["", "24", "2024-", "-2025", "2024-25", "2024,2025", "2024 - 2025", "2025-2024", "0000", "9999", "x"],
)
def test_bad_years_are_refused(years):
    with pytest.raises(ConfigError, match=r"years .*expected .*first-last, such as 2024-2025"):
        ask(years=years)


@pytest.mark.parametrize(
    ("hours", "complaint"),
    [
        ("", "--hours : expected first-last, such as 06:00:00-23:00:00"),
        ("06:00", "--hours 06:00: expected first-last"),
        ("6:00-23:00", "--hours 6:00-23:00: expected first-last"),
        ("06-23", "--hours 06-23: expected first-last"),
        ("06:00-24:00", "hour '24:00:00': expected HH:MM:SS"),
        ("06:60-23:00", "hour '06:60:00': expected HH:MM:SS"),
        ("23:00-06:00", "hours 23:00:00-06:00:00: the first must not be after the last"),
    ],
)
def test_bad_hours_are_refused(hours, complaint):
    with pytest.raises(ConfigError) as refusal:
        ask(hours=hours)
    assert str(refusal.value).startswith(complaint)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"min_amount": ""}, "minimum amount"),
        ({"min_amount": "75.00001"}, "minimum amount"),
        ({"top": 0}, "top 0"),
    ],
)
def test_a_bad_amount_or_number_of_customers_is_refused(flags, complaint):
    with pytest.raises(ConfigError, match=complaint):
        ask(**flags)


def test_a_flag_counts_even_if_it_is_empty_or_zero():
    assert not has_flags(None, None, None, None)
    assert has_flags("", None, None, None)
    assert has_flags(None, None, None, 0)


FIRST = """
[[question]]
name = "total"
title = "Total"
from = "transactions"
measure = { revenue = "sum(final_amount)" }
columns = ["revenue"]
"""
SECOND = FIRST.replace('"total"', '"by_hour"').replace(
    "measure", 'by = { hour = "hour(created_at)" }\nmeasure'
)


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def names(files=(), ask=(), base=None):
    asked = select_questions(base or QuestionsSection(), Parameters(), list(files), list(ask))
    return [question.name for question in asked.questions]


def test_files_without_names_ask_all_their_questions(write):
    files = [write("a.toml", FIRST), write("b.toml", SECOND)]
    assert names() == list(builtin())
    assert names(files[:1]) == ["total"]
    assert names(files) == ["total", "by_hour"]


def test_names_pick_out_of_the_catalog_and_the_files(write):
    assert names([write("a.toml", FIRST)], ["3", "total"]) == ["3", "total"]
    assert names(ask=["2_1"]) == ["2_1"]


def test_only_the_tables_of_the_asked_questions_are_needed(write):
    asked = select_questions(QuestionsSection(), Parameters(), [write("a.toml", FIRST)], None)
    assert {name: len(table.columns) for name, table in asked.tables.items()} == {"transactions": 1}


def test_a_question_that_two_files_define_is_refused(write):
    first, second = write("a.toml", FIRST), write("b.toml", FIRST)
    with pytest.raises(
        QuestionError, match=f"^{second}: question total is in {first} too; names must differ"
    ):
        names([first, second])


@pytest.mark.parametrize(
    ("ask", "complaint"), [(["5"], "there is no question '5'"), (["totl"], "did you mean total?")]
)
def test_an_unknown_or_ambiguous_name_is_refused(write, ask, complaint):
    with pytest.raises(QuestionError) as refused:
        names([write("a.toml", FIRST)], ask)
    assert complaint in str(refused.value)


def test_flaws_are_reported_with_file_and_line(write):
    path = write("a.toml", FIRST.replace("final_amount", "finalamount"))
    with pytest.raises(QuestionError) as refused:
        names([path])
    assert str(refused.value) == (
        f"{path}, line 6: question total, measure.revenue: transactions has no column finalamount; "
        "did you mean final_amount?"
    )


def test_too_many_groups_are_refused_by_the_bound_of_the_settings(write):
    path = write("a.toml", SECOND)
    assert names([path], base=QuestionsSection(max_groups=24)) == ["by_hour"]
    with pytest.raises(
        QuestionError, match=f"^{path}, line 6: question by_hour, by: the keys can make 24 groups"
    ):
        names([path], base=QuestionsSection(max_groups=23))


def test_a_chart_that_cannot_be_drawn_is_refused(write):
    text = SECOND + 'chart = { mark = "line", x = "hour", y = "first" }\n'
    path = write("a.toml", text.replace("{ revenue", '{ first = "min(created_at)", revenue'))
    with pytest.raises(QuestionError, match=r"line 9: question by_hour, chart: first has no figures; name"):
        names([path])


def test_a_file_that_cannot_be_read_is_refused(write, tmp_path):
    for path, complaint in [
        (tmp_path / "none.toml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (write("large.toml", "#" * (1 << 20) + "#"), "larger than 1,048,576 bytes"),
    ]:
        with pytest.raises(InputError) as refused:
            names([path])
        assert str(refused.value).startswith(f"{path}: {complaint}")
    binary = tmp_path / "latin.toml"
    binary.write_bytes(b"caf\xe9")
    with pytest.raises(InputError, match="not UTF-8 text"):
        names([binary])


def test_a_run_is_opened_with_the_asked_questions(write):
    four = run_arguments(select_questions(QuestionsSection(), Parameters(top=5)))
    assert four == {
        "years": (2024, 2025),
        "hours": ("06:00:00", "23:00:00"),
        "min_amount": "75",
        "top": 5,
        "questions": [],
        "ask": None,
    }
    own = run_arguments(
        select_questions(QuestionsSection(), Parameters(), [write("a.toml", FIRST)], ["total", "1"])
    )
    assert (own["ask"], [question.name for question in own["questions"]]) == (["total", "1"], ["total"])
