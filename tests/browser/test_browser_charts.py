"""Charts and names in a real browser: drawn by the gateway, inserted by the page, for any names."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from prepared_runs import write_done_run
from visits import BareGateway, Visit

from kopitiam.results.cells import ringgit
from made_answers import MadeAnswers, answers_to, small_answers

OWNER = "anybody"
RIGHT_TO_LEFT = "\u202eevil \u05e9\u05dc\u05d5\u05dd\u200f 12\u2069"
HOSTILE = [
    "<img src=x onerror=boom()>",
    "</title><script>boom()</script>",
    "a]]>&amp;",
    RIGHT_TO_LEFT,
    "☕👩\u200d👧",
]
BARS = """name => [...document.querySelectorAll(`#chart-${name} path`)]
    .filter(path => path.firstElementChild?.localName === "title")
    .map(path => ({ title: path.textContent, width: path.getBBox().width, height: path.getBBox().height }))"""
# Where each character of a text stands, from left to right, as it is drawn.
DRAWN = """text => {
    const shown = [...text.childNodes].filter(node => node.nodeType === 3).map(node => node.data).join("");
    return [...Array(text.getNumberOfChars()).keys()].map(i => [shown[i], text.getExtentOfChar(i).x]);
}"""
WITHOUT_ISOLATES = r"""text => {
    const node = [...text.childNodes].find(node => node.nodeType === 3);
    node.data = node.data.replace(/[\u2066-\u2069]/g, "");
}"""
MADE_OF_TEXT = "() => document.querySelectorAll('img[src=x], [onerror], main script').length"
WEIGHT = """() => performance.getEntriesByType("resource")
    .concat(performance.getEntriesByType("navigation"))
    .reduce((whole, entry) => whole + entry.encodedBodySize, 0)"""
HOURLY = """
name = "sales_by_hour"
title = "Sales by hour and store"
from = "transactions"
by = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)" }
columns = ["hour", "store_name", "revenue"]
chart = { mark = "bar", x = "hour", y = "revenue", color = "store_name" }
"""


def open_answers(visit: Visit, bare_gateway: BareGateway, made: MadeAnswers, label: str = "Shelved") -> str:
    run = write_done_run(bare_gateway.home, label, made, OWNER)
    visit.open(f"#/runs/{run}")
    return run


def test_bars_have_the_length_and_the_text_of_their_figures(guest: Visit, bare_gateway: BareGateway) -> None:
    made = small_answers()
    open_answers(guest, bare_gateway, made)
    expect(guest.page.locator("#chart-3 svg")).to_be_visible()
    figures = {row[2] + row[0]: row[3] for row in made.tables["3"]}
    drawn: list[dict[str, Any]] = guest.page.evaluate(BARS, "3")
    assert len(drawn) == len(figures)
    most = max(bar["width"] for bar in drawn)
    for bar in drawn:
        parts = dict(part.split(": ") for part in bar["title"].split("; "))
        figure = figures[parts["store_name"] + parts["year_half_created_at"]]
        assert parts["tpv"] == ringgit(figure)
        assert bar["width"] / most == pytest.approx(float(figure / max(figures.values())), abs=0.01)


def test_every_question_has_a_chart_and_a_table(guest: Visit, bare_gateway: BareGateway) -> None:
    rows = [(h, s, f"Store {s}", Decimal(100 * h + s), True) for h in range(8, 20) for s in range(14)]
    run = open_answers(guest, bare_gateway, answers_to(HOURLY, rows))
    article = guest.page.locator("#answer-sales_by_hour")
    expect(article.locator("svg.chart")).to_be_visible()
    expect(article.locator("svg.chart")).to_contain_text("48 of 168 rows are added up as others.")
    expect(article).to_contain_text("sum(final_amount) of transactions, for each hour and store_name.")
    expect(article.locator(".leaf")).to_contain_text("1–20 of 168")
    assert guest.rows("Sales by hour and store")[0] == ["8", "Store 0", "RM 800.00"]
    article.get_by_role("searchbox").fill("Store 13")
    expect(article.locator(".leaf")).to_contain_text("1–12 of 12")
    with guest.page.expect_download() as download:
        article.get_by_role("link", name="PNG").click()
    assert download.value.suggested_filename == "results_sales_by_hour.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert run


def test_an_answer_by_name_and_period_has_a_column_for_each_period(
    guest: Visit, bare_gateway: BareGateway
) -> None:
    open_answers(guest, bare_gateway, small_answers())
    expect(guest.table("Total payment value per half-year and store")).to_be_visible()
    assert guest.rows("Total payment value per half-year and store") == [
        ["North", "RM 115,922.885", "RM 12,055,387.76"],
        ["South", "RM 40.00", "–"],
    ]
    assert guest.rows("Best-selling product per month")[1] == ["2024-02", "99 not in its table", "12"]
    assert guest.rows("Customers with most purchases per store")[0] == ["North", "2", "7", "empty", "8"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_everywhere(guest: Visit, bare_gateway: BareGateway, name: str) -> None:
    run = open_answers(guest, bare_gateway, small_answers(store=name, item=name), name)
    expect(guest.page.locator("#chart-4 svg")).to_be_visible()
    assert guest.page.evaluate(MADE_OF_TEXT) == 0
    assert len(guest.page.evaluate(BARS, "4")) == 3
    for place in ("#/", f"#/runs/{run}"):
        guest.page.goto(f"{bare_gateway.url}/{place}")
        assert guest.page.evaluate(MADE_OF_TEXT) == 0


def figure_order(page: Page, text: str) -> None:
    """Check that the figure is to the right of the name, with its characters from left to right."""
    label = page.locator("svg.chart text", has_text=text).first
    drawn = label.evaluate(DRAWN)
    written = "".join(character for character, _ in drawn)
    begin = written.rindex(text)
    figure = [x for _, x in drawn[begin:]]
    assert figure == sorted(figure)
    name = [x for character, x in drawn[: begin - 3] if character not in "\u2068\u2069\u200f\u202e"]
    assert max(name) < figure[0]


def test_a_right_to_left_name_does_not_turn_the_figure_beside_it(
    guest: Visit, bare_gateway: BareGateway, context: BrowserContext, tmp_path: Path
) -> None:
    run = open_answers(guest, bare_gateway, small_answers(store=RIGHT_TO_LEFT, item=RIGHT_TO_LEFT))
    expect(guest.page.locator("#chart-3 svg")).to_be_visible()
    figure_order(guest.page, "RM 115,922.885")
    figure_order(guest.page, "3,031")
    guest.page.locator("#chart-3 svg text", has_text="RM 115,922.885").first.evaluate(WITHOUT_ISOLATES)
    with pytest.raises(AssertionError):
        figure_order(guest.page, "RM 115,922.885")
    for file in ("report.html", "3.svg"):
        copy = tmp_path / file
        address = f"{bare_gateway.url}/api/v1/runs/{run}/results/{file}"
        copy.write_bytes(context.request.get(address).body())
        page = context.new_page()
        page.goto(copy.as_uri())
        figure_order(page, "RM 115,922.885")


def test_a_note_behind_a_right_to_left_name_stays_behind_it(guest: Visit, bare_gateway: BareGateway) -> None:
    made = small_answers()
    made.tables["2_1"][1] = ("2024-02", 99, RIGHT_TO_LEFT, 12, False)
    open_answers(guest, bare_gateway, made)
    row = guest.table("Best-selling product per month").locator("tbody tr").nth(1)
    name, note = row.locator("bdi").last.bounding_box(), row.locator("em").bounding_box()
    assert name is not None
    assert note is not None
    assert name["x"] + name["width"] <= note["x"] + 1
    order = """element => { const range = document.createRange(), node = element.firstChild;
        return [...node.data].map((_, i) => { range.setStart(node, i); range.setEnd(node, i + 1);
            return range.getBoundingClientRect().left; }); }"""
    places = row.locator("em").evaluate(order)
    assert places == sorted(places)


@pytest.mark.parametrize("letter", ["x", "W", "م", "店"])
def test_names_of_900_letters_do_not_change_the_layout(
    guest: Visit, bare_gateway: BareGateway, letter: str
) -> None:
    name = letter * 900
    open_answers(guest, bare_gateway, small_answers(store=name, item=name))
    for chart in ("2_1", "3", "4"):
        expect(guest.page.locator(f"#chart-{chart} svg")).to_be_visible()
        assert max(bar["width"] for bar in guest.page.evaluate(BARS, chart)) > 200
    assert guest.page.evaluate("() => document.documentElement.scrollWidth") <= 1280
    shown = guest.page.locator("#answer-3 tbody bdi[title]").first
    assert shown.get_attribute("title") == name
    box = shown.bounding_box()
    assert box is not None
    assert box["width"] < 460
    outside = """() => [...document.querySelectorAll("svg.chart text")].filter(text => {
        const own = text.getBoundingClientRect(), all = text.closest("svg").getBoundingClientRect();
        return own.right > all.right + 1 || own.left < all.left - 1; }).map(text => text.textContent)"""
    assert guest.page.evaluate(outside) == []


@pytest.mark.parametrize(
    "evil",
    [
        "<svg xmlns='http://www.w3.org/2000/svg'><script>boom()</script></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg' onload='boom()'/>",
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='/favicon.ico'/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><path fill='url(#x)'/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><text style='color:red'>x</text></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><a href='javascript:boom()'/></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg'><foreignObject/></svg>",
        "<html xmlns='http://www.w3.org/1999/xhtml'><script>boom()</script></html>",
        "<svg",
    ],
)
def test_an_svg_with_active_content_is_not_inserted(
    guest: Visit, bare_gateway: BareGateway, evil: str
) -> None:
    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="image/svg+xml", body=evil)

    guest.page.route("**/results/3.svg*", answer)
    guest.expects_console_messages = True  # some are blocked by the content security policy
    open_answers(guest, bare_gateway, small_answers())
    expect(guest.page.locator("#chart-3")).to_contain_text("There is no chart")
    assert guest.page.locator("#chart-3 svg, #chart-3 script").count() == 0
    expect(guest.page.locator("#chart-4 svg")).to_be_visible()


def test_charts_follow_the_colours_of_the_page(guest: Visit, bare_gateway: BareGateway) -> None:
    open_answers(guest, bare_gateway, small_answers())
    bar = guest.page.locator("#chart-2_1 path.f-c0").first
    fill = "path => getComputedStyle(path).fill"
    light = bar.evaluate(fill)
    guest.page.emulate_media(color_scheme="dark")
    dark = bar.evaluate(fill)
    assert (light, dark) == ("rgb(0, 114, 178)", "rgb(86, 180, 233)")
    guest.page.get_by_role("button", name="Colours").click()  # the switch: light
    assert bar.evaluate(fill) == light


def test_charts_have_accessible_names_and_are_reached_by_keyboard(
    guest: Visit, bare_gateway: BareGateway
) -> None:
    open_answers(guest, bare_gateway, small_answers())
    chart = guest.page.get_by_role("img", name="Total payment value per half-year and store. tpv by")
    expect(chart).to_be_visible()
    region = guest.page.get_by_role("region", name="Chart: Total payment value per half-year and store")
    region.focus()
    expect(region).to_be_focused()
    assert guest.page.evaluate("() => [...document.querySelectorAll('table')].every(table => table.caption)")


def test_the_page_with_all_its_charts_is_light(
    guest: Visit, bare_gateway: BareGateway, record_property
) -> None:
    open_answers(guest, bare_gateway, small_answers())
    expect(guest.page.locator("#chart-4 svg")).to_be_visible()
    weight = guest.page.evaluate(WEIGHT)
    record_property("page_bytes", weight)
    assert 20_000 < weight < 160_000
    foreign = [request.url for request in guest.requests if "vega" in request.url]
    assert foreign == []


def test_a_chart_that_failed_to_load_is_drawn_later(
    guest: Visit, bare_gateway: BareGateway, context: BrowserContext
) -> None:
    guest.expects_failed_requests = True
    context.route("**/results/3.svg*", lambda route: route.abort("connectionrefused"))
    open_answers(guest, bare_gateway, small_answers())
    expect(guest.page.locator("#chart-4 svg")).to_be_visible()
    assert guest.page.locator("#chart-3 svg").count() == 0
    context.unroute("**/results/3.svg*")
    expect(guest.page.locator("#chart-3 svg")).to_be_visible()


def test_a_chart_file_follows_light_and_dark_mode(
    browser: Browser, bare_gateway: BareGateway, tmp_path: Path
) -> None:
    run = write_done_run(bare_gateway.home, "Alone", small_answers(), OWNER)
    grounds = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        file = tmp_path / "chart.svg"
        address = f"{bare_gateway.url}/api/v1/runs/{run}/results/3.svg"
        file.write_bytes(context.request.get(address).body())
        page = context.new_page()
        page.goto(file.as_uri())
        grounds.append(page.locator("path.f-ground").evaluate("path => getComputedStyle(path).fill"))
        context.close()
    assert grounds == ["rgb(255, 255, 255)", "rgb(27, 25, 23)"]
