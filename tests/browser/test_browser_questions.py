"""Own questions: written in the page, checked while typing, stored, selected, and sent with an upload."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Route, expect
from visits import BareGateway, Visit

OWN = """[[question]]
name    = "sales_by_hour"
title   = "Sales by hour"
from    = "transactions"
by      = { hour = "hour(created_at)" }
measure = { revenue = "sum(final_amount)" }
columns = ["hour", "revenue"]
"""
VOUCHERS = """[[question]]
name    = "sales_by_voucher"
title   = "Sales by voucher <b>"
from    = "transactions"
by      = { voucher_id = "voucher_id" }
measure = { revenue = "sum(final_amount)" }
columns = ["voucher_code", "revenue"]
"""


def write(visit: Visit, text: str) -> None:
    visit.open("#/questions")
    visit.page.get_by_label("Definitions").fill(text)


def opened(visit: Visit) -> dict[str, Any]:
    """Return the request with which the page opens a run."""
    with visit.page.expect_request(
        lambda request: request.url.endswith("/runs") and request.method == "POST"
    ) as sent:
        visit.page.get_by_role("button", name="Start", exact=True).click()
    body: dict[str, Any] = json.loads(sent.value.post_data or "")
    return body


def test_the_catalog_is_shown_with_the_explanations_of_the_gateway(guest: Visit) -> None:
    def explain(route: Route) -> None:
        catalog = route.fetch().json()
        for question in catalog["questions"]:
            question["explains"] = [f"Reads what {question['name']} needs.", "Shows <b>all</b> of it."]
        route.fulfill(json=catalog)

    guest.page.route("**/api/v1/questions", explain)
    guest.open("#/questions")
    entries = guest.page.locator(".catalog article")
    expect(entries).to_have_count(5)
    expect(entries.nth(3)).to_contain_text("Total payment value per half-year and store")
    expect(entries.nth(3).locator("li")).to_have_text(["Reads what 3 needs.", "Shows <b>all</b> of it."])
    entries.nth(3).get_by_text("Definition").click()
    expect(entries.nth(3).locator("pre")).to_contain_text('tpv = "sum(final_amount)"')


def test_a_flaw_is_shown_with_its_line_while_typing(guest: Visit) -> None:
    write(guest, OWN.replace("sum(final_amount)", "sum(nothing)"))
    word = guest.page.locator(".word")
    expect(word.locator(".flaw")).to_contain_text("nothing")
    word.get_by_role("button", name="Go to line 6").click()
    text = guest.page.get_by_label("Definitions")
    expect(text).to_be_focused()
    chosen = text.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)")
    assert chosen.startswith("measure")
    text.fill(OWN)
    expect(word).to_contain_text("1 question can be asked.")
    expect(word).to_contain_text("Sales by hour")
    expect(word.locator(".flaw")).to_have_count(0)


def test_own_questions_are_stored_in_the_browser_and_sent_with_an_upload(
    guest: Visit, sound_folder: Path, bare_gateway: BareGateway
) -> None:
    write(guest, OWN)
    guest.page.get_by_role("link", name="Ask in a new upload").click()
    guest.choose(sound_folder)
    expect(guest.page.get_by_label("Sales by hour")).to_be_checked()
    expect(guest.page.get_by_label("Large purchases")).not_to_be_checked()
    recognized = guest.page.get_by_role("table", name="Tables that were recognized")
    expect(recognized.locator("tbody tr")).to_have_count(1)
    expect(recognized).to_contain_text("transactions")
    guest.page.get_by_label("Best-selling").check()
    expect(recognized.locator("tbody tr")).to_have_count(3)
    body = opened(guest)
    assert body["questions"]["ask"] == ["2_1", "sales_by_hour"]
    assert [definition["name"] for definition in body["questions"]["definitions"]] == ["sales_by_hour"]
    expect(guest.page.get_by_role("heading", name="Questions of this run")).to_be_visible()
    asked = guest.page.locator(".asked li")
    expect(asked).to_have_text(["Best-selling product per month", "Sales by hour"])
    guest.page.reload()
    guest.page.goto(f"{bare_gateway.url}/#/questions")
    expect(guest.page.get_by_label("Definitions")).to_have_value(OWN)


def test_without_own_questions_the_request_names_none(guest: Visit, sound_folder: Path) -> None:
    guest.open("#/upload")
    guest.choose(sound_folder)
    body = opened(guest)
    assert not {"ask", "definitions"} & set(body["questions"])
    assert body["questions"]["years"] == [2024, 2025]


def test_a_question_whose_table_is_missing_is_explained(guest: Visit, sound_folder: Path) -> None:
    write(guest, VOUCHERS)
    expect(guest.page.locator(".word")).to_contain_text("can be asked")
    guest.open("#/upload")
    guest.choose(sound_folder)
    start = guest.page.get_by_role("button", name="Start", exact=True)
    expect(start).to_be_visible()
    guest.page.get_by_label("Sales by voucher <b>").check()
    flaw = guest.page.get_by_role("alert").filter(has_text="No table vouchers")
    expect(flaw).to_be_visible()
    expect(start).to_be_hidden()
    assert [request.url for request in guest.requests if request.url.endswith("/runs")] == []
    guest.page.get_by_label("Sales by voucher <b>").uncheck()
    expect(flaw).to_be_hidden()
    expect(start).to_be_visible()


def test_with_no_question_nothing_is_sent(guest: Visit, sound_folder: Path) -> None:
    guest.open("#/upload")
    guest.choose(sound_folder)
    expect(guest.page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    for box in guest.page.locator(".choices input").all():
        box.uncheck()
    expect(guest.page.get_by_role("alert").filter(has_text="No question is chosen")).to_be_visible()
    expect(guest.page.get_by_role("button", name="Start", exact=True)).to_be_hidden()


def test_own_questions_with_a_flaw_do_not_block_an_upload(guest: Visit, sound_folder: Path) -> None:
    write(guest, "[[question]]\nname = 7\n")
    expect(guest.page.locator(".word .flaw")).to_be_visible()
    guest.open("#/upload")
    guest.choose(sound_folder)
    expect(guest.page.get_by_text("Your own questions have a flaw")).to_be_visible()
    expect(guest.page.get_by_role("button", name="Start", exact=True)).to_be_visible()


def test_a_question_of_the_catalog_can_be_copied_and_edited(guest: Visit) -> None:
    guest.open("#/questions")
    guest.page.locator(".catalog article").nth(4).get_by_role("button", name="Use as a template").click()
    expect(guest.page.locator(".word")).to_contain_text("1 question can be asked.")
    assert 'name    = "my_4"' in guest.page.get_by_label("Definitions").input_value()


def test_rows_of_each_stage_are_shown_by_its_role(
    guest: Visit, bare_gateway: BareGateway, context: BrowserContext
) -> None:
    opened_run = context.request.post(f"{bare_gateway.url}/api/v1/runs", data={"label": "Flows"}).json()
    stages = {
        "sieve_of_mine": ("filter", 10_201_118, 9_812_344),
        "check_stores": ("check", 10, 10),
        "my_sums": ("aggregate", 9_812_344, 40),
        "my_best": ("rank", 40, 3),
        "my_names": ("join", 3, 3),
        "server_results": ("publish", 3, 3),
    }
    status = opened_run | {
        "stages": {
            name: {"0": {"role": role, "expected": 4, "processed": 3, "rows": rows, "rows_out": rows_out}}
            for name, (role, rows, rows_out) in stages.items()
        }
    }

    def answer(route: Route) -> None:
        route.fulfill(json=status)

    guest.page.route(f"**/runs/{opened_run['run']}", answer)
    guest.page.route(
        "**/events", lambda route: route.fulfill(status=200, body="", content_type="text/event-stream")
    )
    guest.open(f"#/runs/{opened_run['run']}")
    places = guest.page.locator(".path .place")
    expect(places.filter(has_text="Filters")).to_contain_text("9,812,344 of 10,201,118 went on")
    expect(places.filter(has_text="Filters")).to_contain_text("check_stores")
    for name, stage in (
        ("Aggregators", "my_sums"),
        ("Maximizers", "my_best"),
        ("Joiners", "my_names"),
        ("Results", "server_results"),
    ):
        expect(places.filter(has_text=name).locator("code")).to_have_text(stage)
    guest.page.get_by_text("Every stage, shard by shard").click()
    assert guest.rows("Chunks and rows by stage and shard")[0] == [
        "sieve_of_mine",
        "0",
        "4",
        "3",
        "10,201,118",
        "9,812,344",
    ]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_of_questions_fits_any_screen_and_names_its_parts(guest: Visit, width: int) -> None:
    guest.page.set_viewport_size({"width": width, "height": 844})
    write(guest, OWN)
    expect(guest.page.locator(".word")).to_contain_text("can be asked")
    assert guest.page.evaluate("() => document.documentElement.scrollWidth") <= width
    expect(guest.page.get_by_role("heading", name="Questions", level=1)).to_be_visible()
    expect(guest.page.get_by_role("status").filter(has_text="can be asked")).to_be_visible()
