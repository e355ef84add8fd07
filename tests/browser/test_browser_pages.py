"""The page: size, tokens, long lists, failed runs, light and dark mode, keyboard."""

import time

import pytest
from playwright.sync_api import Browser, expect
from prepared_runs import (
    sale,
    shelve_nodes,
    write_done_run,
    write_ended_runs,
    write_failed_run,
    write_long_run,
)
from visits import Visit

from acceptance.services import Service
from kopitiam.contracts.messages import NodeRecord
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.cells import ringgit
from made_answers import MadeAnswers, sales

MOST_BYTES = 160_000
GENEROUS_PAINT_MS = 5_000  # about a tenth of it on an idle machine
WEIGHT = """() => performance.getEntriesByType("resource")
    .concat(performance.getEntriesByType("navigation"))
    .reduce((whole, entry) => whole + entry.encodedBodySize, 0)"""
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
UNNAMED = """() => [...document.querySelectorAll("button, a, input")]
    .filter(element => element.checkVisibility() && !element.textContent.trim())
    .filter(element => !element.ariaLabel && !element.labels?.length)
    .map(element => element.outerHTML)"""
ROWS = 100_000


@pytest.fixture(scope="module")
def long_run(service: Service) -> str:
    return write_long_run(service.home, "A hundred thousand", ROWS)


def test_the_whole_page_with_its_charts_is_light_and_paints_soon(
    visit: Visit, long_run: str, record_property
) -> None:
    visit.enter(f"#/runs/{long_run}")
    expect(visit.page.locator("#chart-1 svg")).to_be_visible()
    weight, paint = visit.page.evaluate(WEIGHT), visit.page.evaluate(PAINT)
    record_property("page_bytes", weight)
    record_property("first_paint_ms", paint)
    assert 20_000 < weight < MOST_BYTES
    assert paint < GENEROUS_PAINT_MS


def test_a_wrong_token_is_explained_and_the_right_one_is_accepted(visit: Visit) -> None:
    visit.expects_failed_requests = True  # the browser logs every 401
    visit.open()
    expect(visit.page.locator("#signing-in")).to_be_visible()
    for _ in range(2):
        visit.page.keyboard.press("Escape")
    expect(visit.page.locator("#signing-in")).to_be_visible()
    visit.sign_in("wrong")
    expect(visit.page.locator("#token-flaw")).to_contain_text("is not known")
    expect(visit.page.get_by_label("Token", exact=True)).to_have_value("")
    visit.sign_in("two words")
    expect(visit.page.locator("#token-flaw")).to_contain_text("it has a blank")
    visit.sign_in(visit.token)
    expect(visit.page.get_by_role("heading", name="Runs")).to_be_visible()
    expect(visit.page.locator("#signing-in")).to_be_hidden()
    assert visit.token not in visit.page.url
    assert visit.token not in str(visit.page.evaluate("() => ({...localStorage})"))
    visit.page.reload()
    expect(visit.page.locator("#signing-in")).to_be_hidden()
    visit.page.get_by_role("button", name="Forget token").click()
    expect(visit.page.locator("#signing-in")).to_be_visible()


def test_a_thousand_runs_come_page_by_page(visit: Visit, service: Service) -> None:
    write_ended_runs(service.home, 1000)
    visit.enter()
    page = visit.page
    page.get_by_role("searchbox").fill("old run")
    place = page.get_by_role("navigation", name="Pages of runs")
    expect(place).to_contain_text("1–25 of 1,000 runs")
    rows = page.locator("table.runs tbody tr")
    expect(rows).to_have_count(25)
    expect(rows.first).to_contain_text("old run 999")
    page.get_by_role("button", name="Older").click()
    expect(place).to_contain_text("26–50 of 1,000 runs")
    expect(rows.first).to_contain_text("old run 974")
    page.get_by_role("button", name="Newer").click()
    expect(rows.first).to_contain_text("old run 999")
    page.get_by_role("searchbox").fill("OLD RUN 123")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Failed").click()
    expect(page.locator(".empty")).to_contain_text("No run matches")


def test_a_hundred_thousand_rows_are_paged_and_searched_on_the_server(visit: Visit, long_run: str) -> None:
    visit.enter(f"#/runs/{long_run}")
    place = visit.page.locator("#answer-1 .leaf")
    expect(place).to_contain_text("1–20 of 100,000")
    visit.page.locator("#answer-1").get_by_role("button", name="Next page").click()
    expect(place).to_contain_text("21–40 of 100,000")
    assert visit.rows("Large purchases in opening hours") == [
        [sale(n)[0], ringgit(sale(n)[1])] for n in range(20, 40)
    ]
    visit.page.locator("#answer-1").get_by_role("searchbox").fill("SALE-09999")
    expect(place).to_contain_text("1–10 of 10")
    assert visit.rows("Large purchases in opening hours") == [
        [sale(n)[0], ringgit(sale(n)[1])] for n in range(99_990, 100_000)
    ]
    visit.page.locator("#answer-1").get_by_role("searchbox").fill("nobody's")
    expect(visit.table("Large purchases in opening hours")).to_contain_text("Nothing like that")
    answered = [request for request in visit.requests if "/results/1/rows" in request.url]
    assert max(len(request.response().body()) for request in answered) < 10_000
    expect(visit.page.locator("#answer-3")).to_contain_text("No rows.")


def test_a_second_click_while_a_page_loads_does_not_skip_it(visit: Visit, long_run: str) -> None:
    visit.enter(f"#/runs/{long_run}")
    place, forth = (
        visit.page.locator("#answer-1 .leaf"),
        visit.page.locator("#answer-1").get_by_label("Next page"),
    )
    expect(place).to_contain_text("1–20 of")
    held = visit.hold("**/results/1/rows?offset=*")
    forth.dblclick()
    expect(visit.page.locator("#answer-1 .paged")).to_have_attribute("aria-busy", "true")
    held.pop().continue_()
    expect(place).to_contain_text("21–40 of")
    assert held == []


def test_a_chart_says_that_it_does_not_show_all_rows(visit: Visit, service: Service) -> None:
    customers = [(1, "North", rank, rank, None, 90 - rank, True, False) for rank in range(1, 51)]
    run = write_done_run(
        service.home,
        "Many customers",
        MadeAnswers({"1": sales("80", "90"), "4": customers}, QuestionSet.of_catalog(Parameters(top=50))),
    )
    visit.enter(f"#/runs/{run}")
    expect(visit.page.locator("#chart-4")).to_contain_text("The chart shows 10 of 50 rows")
    expect(visit.page.locator("#chart-1 svg")).to_be_visible()
    expect(visit.page.locator("#answer-1")).not_to_contain_text("The chart shows")


def test_a_run_that_is_loading_says_so(visit: Visit, long_run: str) -> None:
    visit.enter()
    held = visit.hold(f"**/runs/{long_run}", f"**/runs/{long_run}/results")
    visit.page.goto(f"{visit.service.url}/#/runs/{long_run}")
    expect(visit.page.get_by_role("heading", name="Run", exact=True)).to_be_focused()
    expect(visit.page.get_by_role("main")).to_contain_text("Loading…")
    held.pop().continue_()
    expect(visit.page.get_by_role("heading", name="A hundred thousand")).to_be_focused()
    expect(visit.page.locator(".notice")).to_have_text("Reading the answers…")
    held.pop().continue_()
    expect(visit.page.locator("#chart-1 svg")).to_be_visible()


def test_a_failed_run_shows_its_error(visit: Visit, service: Service) -> None:
    run = write_failed_run(service.home, "Unlucky", "more rows than END promised: 12 of 11")
    visit.enter(f"#/runs/{run}")
    expect(visit.page.get_by_role("alert").filter(has_text="This run failed.")).to_contain_text("12 of 11")
    expect(visit.page.get_by_role("heading", name="Answers")).to_be_hidden()


def test_unknown_runs_and_invalid_addresses_are_explained(visit: Visit) -> None:
    visit.expects_failed_requests = True  # the browser logs every 404
    visit.enter(f"#/runs/{'f' * 24}")
    expect(visit.page.get_by_role("heading", name="No such run")).to_be_visible()
    visit.page.goto(f"{visit.service.url}/#/nowhere")
    expect(visit.page.get_by_role("heading", name="There is no such page")).to_be_visible()


def test_the_fleet_shows_states_the_leader_and_failed_revivals(visit: Visit, service: Service) -> None:
    now = time.time()
    alarmed = NodeRecord(
        "pipeline-9", "pipeline", 77, None, "dead", now - 90, 4, alarm="5 revivals did not help"
    )
    leader = NodeRecord("monitor-3", "monitor", 78, None, "alive", now - 3700, 9, leader=True)
    shelve_nodes(service.home, alarmed, leader)
    visit.enter("#/fleet")
    tile = visit.page.locator(".node")
    expect(tile.filter(has_text="gateway-1")).to_contain_text("alive")
    expect(tile.filter(has_text="monitor-3")).to_contain_text("Leader")
    expect(tile.filter(has_text="monitor-3")).to_contain_text("1 h 01 min · epoch 9")
    expect(tile.filter(has_text="pipeline-9")).to_contain_text("dead")
    expect(visit.page.get_by_role("alert").filter(has_text="5 revivals")).to_be_visible()


def test_the_colours_follow_the_system_or_the_switch(browser: Browser, service: Service) -> None:
    context = browser.new_context(color_scheme="dark")
    visit = Visit(context.new_page(), service)
    visit.enter()
    look = "() => getComputedStyle(document.body).backgroundColor"
    dark = visit.page.evaluate(look)
    switch = visit.page.get_by_role("button", name="Colours")
    switch.click()
    light = visit.page.evaluate(look)
    assert dark != light
    visit.page.reload()
    assert visit.page.evaluate(look) == light
    switch.click()
    assert visit.page.evaluate(look) == dark
    visit.require_quiet()
    context.close()


def test_the_page_works_by_keyboard_and_has_accessible_names(visit: Visit) -> None:
    visit.enter()
    page = visit.page
    for landmark in ("banner", "main"):
        expect(page.get_by_role(landmark)).to_have_count(1)
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Fleet").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_focused()
    page.get_by_role("link", name="Skip to the content").press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#/fleet")
    unnamed = page.evaluate(UNNAMED)
    assert unnamed == []
    assert page.evaluate("() => [...document.querySelectorAll('table')].every(table => table.caption)")


def test_the_page_is_readable_on_a_phone(browser: Browser, service: Service, long_run: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True)
    visit = Visit(context.new_page(), service)
    visit.enter()
    for place in ("#/", "#/upload", "#/questions", "#/fleet", f"#/runs/{long_run}"):
        visit.page.goto(f"{service.url}/{place}")
        expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
        assert visit.page.evaluate("() => document.documentElement.scrollWidth") <= 390, place
    visit.require_quiet()
    context.close()
