"""A folder dropped into the page, followed to its answers, and the answers read from the page."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from visits import ANSWER_MS, Visit

from acceptance.services import Service
from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.results.ringgit import ringgit
from kopitiam.verification import expected_answers

Rows = list[tuple[str, ...]]
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sept", "Oct", "Nov", "Dec")


def month(text: str) -> str:
    year, number = text.split("-")
    return f"{MONTHS[int(number) - 1]} {year}"


@pytest.fixture(scope="module")
def done(browser: Browser, service: Service, tiny_folder: Path) -> str:
    """A run that was sent from the page, and is done."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = Visit(context.new_page(), service)
    visit.enter("#/upload")
    page = visit.page
    visit.choose(tiny_folder)
    recognized = visit.rows("Tables that were recognized")
    assert [row[0] for row in recognized] == [
        "stores",
        "menu_items",
        "users",
        "transactions",
        "transaction_items",
    ]
    run = visit.start("Tiny folder")

    path = page.get_by_role("list", name="The path of the data")
    expect(path.locator(".place")).to_have_count(9)
    seen = {path.locator("li li", has_text="agg_products").locator(".figure").inner_text()}
    while page.locator(".title .badge").inner_text() != "Done":
        seen.add(path.locator("li li", has_text="agg_products").locator(".figure").inner_text())
        assert service.status(run)["state"] not in {"failed", "ended"}
    assert len(seen) >= 2, "nothing moved"
    visit.require_quiet()
    context.close()
    return run


def answer_page(visit: Visit, run: str) -> None:
    visit.enter(f"#/runs/{run}")
    expect(visit.page.locator("#chart-q4 svg")).to_be_visible(timeout=ANSWER_MS)


def test_the_answers_on_the_page_are_those_of_the_independent_computation(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    sold = [[month(at), item, f"{int(number):,}"] for at, item, number in expected["2_1"]]
    assert visit.rows("Best-selling product per month") == sold
    profit = [[month(at), item, ringgit(amount)] for at, item, amount in expected["2_2"]]
    assert visit.rows("Most profitable product per month") == profit
    halves = sorted({half for half, _, _ in expected["3"]})
    amounts = {(store, half): ringgit(tpv) for half, store, tpv in expected["3"]}
    stores = sorted({store for _, store, _ in expected["3"]})
    shown = {row[0]: row[1:] for row in visit.rows("Total payment value per store and half-year")}
    assert shown == {store: [amounts[store, half] for half in halves] for store in stores}
    customers = visit.rows("Customers with most purchases per store")
    assert sorted((store, born) for store, _, born, _, _ in customers) == sorted(
        (store, born or "unknown") for store, born in expected["4"]
    )
    first = visit.rows("Large purchases")
    assert first == [[sale, ringgit(amount)] for sale, amount in expected["1"][: len(first)]]
    expect(visit.page.locator("#q1 .leaf")).to_contain_text(f"of {len(expected['1']):,}")


def test_every_answer_is_drawn_with_its_exact_figures(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    for chart in ("q1", "q2-best", "q2-profit", "q3", "q4"):
        expect(visit.page.locator(f"#chart-{chart} svg")).to_be_visible()
    drawn = set(visit.page.locator("#chart-q3 svg text").all_text_contents())
    assert {ringgit(tpv) for _, _, tpv in expected["3"]} <= drawn


def test_files_are_taken_away_without_a_token_in_any_address(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    csv = visit.saved(visit.page.locator("#q3").get_by_role("button", name="CSV").click).decode().splitlines()
    assert csv[0] == ",".join(ANSWERS["3"].columns)
    assert [tuple(line.split(",")) for line in csv[1:]] == expected["3"]
    assert visit.saved(visit.page.locator("#q1").get_by_role("button", name="Parquet").click)[:4] == b"PAR1"
    report = visit.saved(visit.page.get_by_role("button", name="Report").click)
    assert b"<html" in report.lower()


def test_bad_rows_and_quoted_lines_are_accounted_for(visit: Visit, sound_folder: Path) -> None:
    stores = sound_folder / "stores" / "stores.csv"
    stores.write_text(
        'store_id,store_name\n1,"North\nHall"\n2,"He said ""South"", twice"\n', encoding="utf-8"
    )
    sales = sound_folder / "transactions" / "transactions_202401.csv"
    sales.write_text(sales.read_text() + 'b,1,,"90.25",2024-02-01 10:00:00\nc,2,,much,2024-02-01 10:00:00\n')
    expected = expected_answers(sound_folder, Questions())

    visit.enter("#/upload")
    visit.choose(sound_folder)
    visit.start("Quotes")
    visit.await_state("Done")
    assert visit.rows("Rows that were set aside") == [
        [
            "transactions/transactions_202401.csv",
            "4",
            visit.rows("Rows that were set aside")[0][2],
            "c,2,,much,2024-02-01 10:00:00",
        ]
    ]
    assert "final_amount 'much'" in visit.rows("Rows that were set aside")[0][2]
    expect(visit.page.locator(".account")).to_contain_text("8 rows read = 7 used + 1 rejected")
    shown = {row[0]: row[1] for row in visit.rows("Total payment value per store and half-year")}
    assert shown == {store: ringgit(tpv) for _, store, tpv in expected["3"]}
    rejected = visit.saved(visit.page.get_by_role("button", name="Download all as CSV").click)
    assert rejected.decode().splitlines()[0] == "table,file,line,reason,row"
