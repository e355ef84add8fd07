"""The report: one page with every answer on it, that needs nothing and believes nobody."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version

import pytest

from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.contracts.tables import Rejected
from kopitiam.results.charts import CHARTS
from kopitiam.results.charts.rows import MOST_MONTHS
from kopitiam.results.report import content_policy, report
from kopitiam.results.report_tables import MOST_ROWS
from kopitiam.results.summary import Coverage, RowCount, Summary
from made_answers import MadeAnswers, sales, small_answers

FINGERPRINT = "sha256:" + "ab" * 32
SUMMARY = Summary(
    Questions(top=5),
    {"stores": RowCount(2, 0), "transactions": RowCount(1_234_567, 3)},
    {"stores": 1, "menu_items": 0, "users": 2},
    {"1": 4},
    1.234,
    fingerprint=FINGERPRINT,
)
REJECTED = [Rejected("transactions/t.csv", 12, "final_amount: 'x' is not a number", "a,<b>,x")]


class Page(HTMLParser):
    """What a reader sees and a browser does."""

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
        if tag not in {"meta", "rect", "line"}:
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
def page():
    return Page(report(small_answers(), SUMMARY, "January", REJECTED))


def test_every_answer_is_there_with_its_chart_and_its_figures(page):
    for answer in ANSWERS.values():
        assert f"Q{answer.name.replace('_', '.')} {answer.title}" in page.text
    assert len(page.all("svg")) == len(CHARTS)
    assert ["2024-01", "Latte", "3,031"] in page.rows
    assert ["2024-01", "Espresso", "RM 12,055,387.76"] in page.rows
    assert ["store", "2024-H1", "2024-H2"] in page.rows
    assert ["North", "RM 115,922.885", "RM 12,055,387.76"] in page.rows
    assert ["South", "RM 40.00", "–"] in page.rows
    assert ["North", "1990-01-01", "1", "1,009"] in page.rows
    assert ["North", "unknown", "2", "8"] in page.rows


def test_names_of_1024_characters_are_shortened_and_no_figure_is():
    answers = small_answers(store="S" * 1024, item="I" * 1024)
    page = Page(report(answers, SUMMARY))
    assert ["2024-01", f"{'I' * 79}…", "3,031"] in page.rows
    assert [f"{'S' * 79}…", "RM 115,922.885", "RM 12,055,387.76"] in page.rows
    assert f"{'I' * 25}… · 3,031" in page.texts  # at the end of a bar


def test_what_its_table_does_not_know_is_said_to_be_unmatched(page):
    assert ["2024-02", "99 (not in its table)", "12"] in page.rows


def test_of_the_large_purchases_the_shape_is_shown_and_where_the_rest_is():
    amounts = [str(75 + number % 40) for number in range(5000)]
    page = Page(report(MadeAnswers({"1": sales(*amounts)}), SUMMARY))
    assert "Purchases 5,000" in page.text
    assert f"Sum RM {sum(map(int, amounts)):,}.00" in page.text
    assert "All 5,000 rows are in results_query_1.csv" in page.text
    assert len([row for row in page.rows if row[0].startswith("sale-")]) == 10
    assert ["sale-0039", "RM 114.00"] in page.rows


def test_a_long_answer_is_cut_and_says_so():
    products = [(f"{2000 + n // 12}-{n % 12 + 1:02d}", 1, "Latte", n, True) for n in range(MOST_ROWS + 7)]
    page = Page(report(MadeAnswers({"2_1": products}), SUMMARY))
    assert "… and 7 more rows in results_query_2_1.csv" in page.text
    assert sum(row[1:2] == ["Latte"] for row in page.rows) == MOST_ROWS
    assert f"The chart shows {MOST_MONTHS} of {MOST_ROWS + 7} rows." in page.text


def test_the_account_adds_up_and_tells_what_was_rejected(page):
    assert ["transactions", "1,234,570", "1,234,567", "3", ""] in page.rows
    assert ["stores", "2", "2", "0", "1"] in page.rows
    assert ["all", "1,234,572", "1,234,569", "3", ""] in page.rows
    assert "Rejected rows, the first 1" in page.text
    assert ["transactions/t.csv", "12", "final_amount: 'x' is not a number", "a,<b>,x"] in page.rows


def test_it_says_what_was_asked_of_what_by_which_version(page):
    for said in (
        "2024 to 2025",
        "06:00:00 to 23:00:00, both included",
        "RM 75.00",
        f"Fingerprint of the input as it was sent {FINGERPRINT}",
        version("kopitiam"),
    ):
        assert said in page.text
    assert "Customers per store 5" in page.text
    assert page.texts.index("January") > 0


def test_nothing_is_loaded_and_nothing_runs(page):
    assert not page.all("script")
    assert not any(
        page.all(tag) for tag in ("img", "link", "iframe", "object", "embed", "use", "image", "base")
    )
    for _, attributes in page.tags:
        assert not {"src", "style", "xlink:href", "srcset"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert all(attributes["href"].startswith("#") for attributes in page.all("a"))


def test_the_policy_in_the_page_allows_its_own_style_sheet_only():
    html = report(small_answers(), SUMMARY)
    style = re.search("<style>(.*?)</style>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policies = [meta["content"] for meta in Page(html).all("meta") if "http-equiv" in meta]
    assert policies == [content_policy()]
    assert policies[0].startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(r"https?:|@import|url\(", html)


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a]]>&amp;"]
)
def test_names_are_shown_as_they_are_and_never_obeyed(evil):
    bad = [Rejected(f"{evil}.csv", 1, f"reason {evil}", evil)]
    page = Page(report(small_answers(store=evil, item=evil), SUMMARY, evil, bad))
    assert not page.all("script")
    assert not page.all("img")
    assert ["2024-01", evil, "3,031"] in page.rows
    assert [f"{evil}.csv", "1", f"reason {evil}", evil] in page.rows
    assert any(evil in text for text in page.texts)


def test_the_same_answers_give_the_same_bytes():
    once, again = (report(small_answers(), SUMMARY, "x", REJECTED) for _ in range(2))
    assert once == again == report(small_answers(), replace(SUMMARY, seconds=99.0), "x", REJECTED)


def test_no_answers_are_told_as_such():
    page = Page(report(MadeAnswers(), Summary(Questions(), {}, {}, {}, 0.0)))
    assert page.text.count("No rows.") == len(ANSWERS)
    assert not page.all("svg")
    assert "Fingerprint" not in page.text


def test_a_provisional_report_says_how_much_it_is_about():
    page = Page(report(small_answers(), replace(SUMMARY, coverage=Coverage(500, 800, None))))
    assert "Provisional: 500 rows of 800 that have come so far." in page.text
    page = Page(report(small_answers(), replace(SUMMARY, coverage=Coverage(500, 800, 1000))))
    assert "Provisional: 500 rows of 1,000." in page.text
    assert "Provisional" not in Page(report(small_answers(), SUMMARY)).text


def test_on_paper_a_tall_chart_keeps_its_size_and_goes_on_overleaf(page):
    style = re.search("<style>(.*?)</style>", report(small_answers(), SUMMARY), re.DOTALL)[1]
    paper = style[style.index("@media print") :]
    assert all(".chart:not(.tall)" in line for line in paper.splitlines() if "max-height" in line)
    assert "figure:not(:has(.tall))" in next(line for line in paper.splitlines() if "break-inside" in line)


def test_every_chart_says_in_words_what_it_shows(page):
    for chart in page.all("svg"):
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 20


def test_columns_have_heads_that_name_them(page):
    assert all(head.get("scope") == "col" for head in page.all("th"))
    assert page.all("html") == [{"lang": "en"}]
