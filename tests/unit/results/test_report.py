"""The report: one self-contained page with all answers, safe for any names."""

import base64
import hashlib
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from importlib.metadata import version

import pytest

from kopitiam.contracts.data_sets import Changes, DataUse
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Rejected
from kopitiam.questions.catalog import builtin
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results import report as reports
from kopitiam.results.charts.rendering import RenderingError
from kopitiam.results.report import MOST_ROWS, content_policy
from kopitiam.results.summary import Coverage, RowCount, RunSummary
from made_answers import MadeAnswers, answers_to, sales, small_answers

FINGERPRINT = "sha256:" + "ab" * 32
SUMMARY = RunSummary(
    QuestionSet.of_catalog(Parameters(top=5)),
    {"stores": RowCount(2, 0), "transactions": RowCount(1_234_567, 3)},
    {"stores": 1, "menu_items": 0, "users": 2},
    {"1": 4},
    1.234,
    fingerprint=FINGERPRINT,
)
REJECTED = [Rejected("transactions/t.csv", 12, "final_amount: 'x' is not a number", "a,<b>,x")]
HOURLY = """
name = "sales_by_hour"
title = "Sales by hour of day and store"
from = "transactions"
where = ["@hour", "final_amount >= 10"]
by = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)" }
rank = { by = "revenue", within = ["hour"], top = 2 }
columns = ["hour", "store_name", "revenue"]
"""


class Page(HTMLParser):
    """The parsed page: texts, tables, links and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "line"}:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.texts.append(data)
        if {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def report(renderer):
    def made(answers, summary=SUMMARY, label="", rejected=()):
        return reports.report(
            answers, replace(summary, question_set=answers.question_set), label, rejected, renderer
        )

    return made


@pytest.fixture
def page(renderer):
    return Page(reports.report(small_answers(), SUMMARY, "January", REJECTED, renderer))


def test_every_answer_is_there_with_its_chart_and_its_figures(page):
    for question in builtin().values():
        assert f"Q{question.name.replace('_', '.')} {question.title}" in page.text
    assert len(page.all("svg")) == len(builtin())
    assert ["2024-01", "Latte", "3,031"] in page.rows
    assert ["2024-01", "Espresso", "RM 12,055,387.76"] in page.rows
    assert ["store_name", "2024-H1", "2024-H2"] in page.rows
    assert ["North", "RM 115,922.885", "RM 12,055,387.76"] in page.rows
    assert ["South", "RM 40.00", "–"] in page.rows
    assert ["store_name", "rank", "user_id", "birthdate", "purchases"] in page.rows
    assert ["North", "1", "8", "1990-01-01", "1,009"] in page.rows
    assert ["North", "2", "7", "empty", "8"] in page.rows


def test_an_own_question_is_shown_as_those_of_the_catalog(report):
    rows = [(9, 1, 1, "North", Decimal("6415.4412"), 12, True), (9, 2, 7, "7", Decimal(5), 1, False)]
    page = Page(report(answers_to(HOURLY, rows)))
    assert "Sales by hour of day and store" in page.text
    assert (
        "sum(final_amount) and count(*) of transactions, from 06:00:00 to 23:00:00 (both included), where "
        "final_amount >= 10, for each hour and store_name; of each hour only the 2 with the highest revenue."
    ) in page.text
    assert ["hour", "rank", "store_name", "revenue", "purchases"] in page.rows
    assert ["9", "1", "North", "RM 6,415.4412", "12"] in page.rows
    assert ["9", "2", "7 not in its table", "RM 5.00", "1"] in page.rows
    assert len(page.all("svg")) == 1
    assert "Least amount" not in page.text, "what no question uses is not told"


def test_names_of_1024_characters_are_shortened_and_no_figure_is(report):
    page = Page(report(small_answers(store="S" * 1024, item="I" * 1024)))
    [product] = [row for row in page.rows if row[0] == "2024-01" and row[-1] == "3,031"]
    assert re.fullmatch("I{40,120}…", product[1])
    [store] = [row for row in page.rows if row[-1] == "RM 12,055,387.76" and row[0][0] == "S"]
    assert re.fullmatch("S{40,120}…", store[0])
    assert store[1] == "RM 115,922.885"
    titles = {given.get("title") for given in page.all("bdi")}
    assert {"S" * 1024, "I" * 1024} <= titles, "the whole name shows when pointed at"


def test_names_are_isolated_from_the_figures_beside_them(report):
    html = report(small_answers(store="\u202eevil 12"))
    assert "<bdi>\u202eevil 12</bdi>" in html


def test_unmatched_names_have_a_note(page):
    assert ["2024-02", "99 not in its table", "12"] in page.rows


def test_a_list_of_rows_shows_figures_the_largest_rows_and_the_file(report):
    amounts = [str(75 + number % 40) for number in range(500)]
    page = Page(report(MadeAnswers({"1": sales(*amounts)})))
    assert "rows 500" in page.text
    assert f"sum RM {sum(map(int, amounts)):,}.00" in page.text
    assert "All 500 rows are in results_query_1.csv" in page.text
    assert len([row for row in page.rows if row[0].startswith("sale-")]) == 10
    assert ["sale-0039", "RM 114.00"] in page.rows


def test_a_long_answer_is_cut_and_says_so(report):
    products = [(f"{1900 + n // 12}-{n % 12 + 1:02d}", 1, "Latte", n, True) for n in range(MOST_ROWS + 7)]
    page = Page(report(MadeAnswers({"2_1": products})))
    assert "… and 7 more rows in results_query_2_1.csv" in page.text
    assert sum(row[1:2] == ["Latte"] for row in page.rows) == MOST_ROWS
    assert f"The chart shows 400 of {MOST_ROWS + 7} rows: the first ones." in page.text


def test_a_table_with_many_periods_is_not_pivoted(report):
    halves = [f"{year}-H1" for year in range(2000, 2020)]
    page = Page(report(MadeAnswers({"3": [(half, 1, "North", Decimal(1), True) for half in halves]})))
    assert ["year_half_created_at", "store_name", "tpv"] in page.rows


def test_stores_with_one_name_show_their_ids(report):
    tpv = [("2024-H1", 1, "North", Decimal(1), True), ("2024-H2", 9, "North", Decimal(9), True)]
    page = Page(report(MadeAnswers({"3": tpv})))
    assert ["North store_id 1", "RM 1.00", "–"] in page.rows
    assert ["North store_id 9", "–", "RM 9.00"] in page.rows


def test_the_account_of_rows_adds_up_and_lists_rejected_rows(page):
    assert ["transactions", "1,234,570", "1,234,567", "3", ""] in page.rows
    assert ["stores", "2", "2", "0", "1"] in page.rows
    assert ["all", "1,234,572", "1,234,569", "3", ""] in page.rows
    assert "Rejected rows, the first 1" in page.text
    assert ["transactions/t.csv", "12", "final_amount: 'x' is not a number", "a,<b>,x"] in page.rows


def test_the_report_shows_parameters_fingerprint_and_version(page):
    for said in (
        "2024 to 2025",
        "06:00:00 to 23:00:00, both included",
        "RM 75.00",
        f"Fingerprint of the input as it was sent {FINGERPRINT}",
        version("kopitiam"),
        "Places of a rank 5",
    ):
        assert said in page.text
    assert page.texts.index("January") > 0


def test_a_report_over_a_data_set_names_the_version_and_what_it_changed(report):
    use = DataUse("id", "sales", True, 2, 3, Changes(added=1, kept=4, rows_added=7))
    text = "sales, version 3: 1 file added, 0 replaced, 4 kept; 7 rows added, 0 taken away"
    assert text in Page(report(small_answers(), replace(SUMMARY, data=use))).text


def test_nothing_is_loaded_and_nothing_runs(page):
    assert not page.all("script")
    assert not any(
        page.all(tag) for tag in ("img", "link", "iframe", "object", "embed", "use", "image", "base")
    )
    assert len(page.all("style")) == 1
    for _, attributes in page.tags:
        assert not {"src", "style", "xlink:href", "srcset"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert all(attributes["href"].startswith("#") for attributes in page.all("a"))


def test_the_policy_in_the_page_allows_its_own_style_sheet_only(report):
    html = report(small_answers())
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policies = [meta["content"] for meta in Page(html).all("meta") if "http-equiv" in meta]
    assert policies == [content_policy()]
    assert policies[0].startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(r"https?:|@import|url\(", html.replace('xmlns="http://www.w3.org/2000/svg"', ""))


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a]]>&amp;"]
)
def test_markup_in_names_is_shown_as_text(report, evil):
    bad = [Rejected(f"{evil}.csv", 1, f"reason {evil}", evil)]
    page = Page(report(small_answers(store=evil, item=evil), SUMMARY, evil, bad))
    assert not page.all("script")
    assert not page.all("img")
    assert ["2024-01", evil, "3,031"] in page.rows
    assert [f"{evil}.csv", "1", f"reason {evil}", evil] in page.rows
    assert any(evil in text for text in page.texts)


@pytest.mark.parametrize(
    "formula", ["=1+1", "+1+1", "-1+1", "@SUM(1)", " =1+1", "\t=1+1", "\xa0=1", "\uff1d1"]
)
def test_no_cell_starts_with_a_formula(report, formula):
    """LibreOffice runs cells, headings and texts of charts as formulas; Gnumeric runs cells of any format."""
    own = HOURLY.replace("Sales by hour of day and store", formula.strip())
    for answers in (
        small_answers(store=formula, item=formula),
        answers_to(own, [(9, 1, 1, formula, Decimal(1), 12, True)]),
    ):
        page = Page(report(answers, SUMMARY, formula, [Rejected(formula, 1, formula, formula)]))
        assert [text for text in page.texts if text.strip().startswith(tuple("=+-@\uff1d"))] == []
        assert any(formula.strip() in text for text in page.texts), "it is shown, and not run"


def test_negative_figures_stay_figures_for_a_spreadsheet(report):
    page = Page(report(answers_to(HOURLY, [(9, 1, 1, "-7", Decimal(1), -12, True)])))
    assert ["9", "1", "\N{WORD JOINER}-7", "RM 1.00", "-12"] in page.rows


def test_the_same_answers_give_the_same_bytes(report):
    once, again = (report(small_answers(), SUMMARY, "x", REJECTED) for _ in range(2))
    assert once == again == report(small_answers(), replace(SUMMARY, seconds=99.0), "x", REJECTED)


def test_answers_without_rows_say_so(report):
    page = Page(report(MadeAnswers(), RunSummary(QuestionSet.of_catalog(), {}, {}, {}, 0.0)))
    assert page.text.count("No rows.") == len(builtin())
    assert not page.all("svg")
    assert "Fingerprint" not in page.text


def test_figures_that_are_all_empty_are_shown_without_a_chart(report):
    page = Page(report(MadeAnswers({"3": [("2024-H1", 1, "North", None, True)]})))
    assert "Nothing to draw: tpv is empty in every row." in page.text
    assert ["2024-H1", "North", "empty"] in page.rows


def test_a_failed_chart_does_not_fail_the_report(renderer, monkeypatch):
    def fail(_):
        raise RenderingError("the engine is gone")

    monkeypatch.setattr(renderer, "svg", fail)
    page = Page(reports.report(small_answers(), SUMMARY, renderer=renderer))
    assert page.text.count("There is no chart: the engine is gone.") == len(builtin())
    assert ["2024-01", "Latte", "3,031"] in page.rows


def test_a_provisional_report_shows_its_coverage(report):
    page = Page(report(small_answers(), replace(SUMMARY, coverage=Coverage(500, 800, None))))
    assert "Provisional: 500 rows of 800 received so far." in page.text
    page = Page(report(small_answers(), replace(SUMMARY, coverage=Coverage(500, 800, 1000))))
    assert "Provisional: 500 rows of 1,000." in page.text
    assert "Provisional" not in Page(report(small_answers())).text


def test_a_tall_chart_may_break_across_printed_pages(report):
    ranked = [(s, f"Store {s}", r, r, None, 20 - r, True, True) for s in range(11) for r in range(1, 11)]
    asked = QuestionSet.of_catalog(Parameters(top=10))
    html = report(MadeAnswers({"4": ranked, "1": sales("75", "80")}, asked))
    assert [figure.get("class") for figure in Page(html).all("figure")] == [None, "tall"]
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)[1]
    paper = style[style.index("@media print") :]
    assert all("figure:not(.tall) .chart" in line for line in paper.splitlines() if "max-height" in line)
    assert "figure:not(.tall)" in next(line for line in paper.splitlines() if "break-inside" in line)


def test_every_chart_has_a_description(page):
    for chart in page.all("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 20


def test_columns_have_headers(page):
    assert all(head.get("scope") == "col" for head in page.all("th"))
    assert page.all("html") == [{"lang": "en"}]
