"""A folder is dropped into the page and uploaded, and its answers are read from the page."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from visits import ANSWER_MS, Visit

from acceptance.services import Service
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import builtin
from kopitiam.results.cells import ringgit
from kopitiam.verification import expected_answers
from kopitiam.verification.rows import load_tables

Rows = list[tuple[str, ...]]
MARKUP = "<img src=x onerror=boom()>"
MADE_OF_TEXT = "() => document.querySelectorAll('img[src=x], [onerror]').length"
BARS = """name => [...document.querySelectorAll(`#chart-${name} path`)]
    .filter(path => path.firstElementChild?.localName === "title")
    .map(path => ({
        label: Object.fromEntries(path.textContent.split("; ").map(pair => pair.split(": "))),
        width: path.getBBox().width,
        height: path.getBBox().height,
    }))"""
RANKED = """
SELECT store_name, rank, coalesce(birthdate, 'empty'), purchases
FROM (
    SELECT store_id, user_id, count(*) AS purchases,
        row_number() OVER (PARTITION BY store_id ORDER BY count(*) DESC, user_id) AS rank
    FROM transactions
    WHERE user_id IS NOT NULL AND created_at >= '2024-01-01' AND created_at < '2026-01-01'
    GROUP BY store_id, user_id
) LEFT JOIN stores USING (store_id) LEFT JOIN users USING (user_id)
WHERE rank <= 3
"""


@pytest.fixture(scope="module")
def done(browser: Browser, service: Service, tiny_folder: Path) -> str:
    """A run that was sent from the page, and is done."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = Visit(context.new_page(), service)
    visit.expects_failed_requests = True  # a busy machine has provisional answers too late: 503
    visit.enter("#/upload")
    page = visit.page
    visit.choose(tiny_folder)
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()
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
    expect(visit.page.locator("#chart-4 svg")).to_be_visible(timeout=ANSWER_MS)


def test_the_answers_on_the_page_are_those_of_the_independent_computation(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    sold = [[at, item, f"{int(number):,}"] for at, item, number in expected["2_1"]]
    assert visit.rows("Best-selling product per month") == sold
    profit = [[at, item, ringgit(amount)] for at, item, amount in expected["2_2"]]
    assert visit.rows("Most profitable product per month") == profit
    halves = sorted({half for half, _, _ in expected["3"]})
    amounts = {(store, half): ringgit(tpv) for half, store, tpv in expected["3"]}
    stores = sorted({store for _, store, _ in expected["3"]})
    shown = {row[0]: row[1:] for row in visit.rows("Total payment value per half-year and store")}
    assert shown == {store: [amounts[store, half] for half in halves] for store in stores}
    customers = visit.rows("Customers with most purchases per store")
    assert sorted((store, born) for store, _, _, born, _ in customers) == sorted(
        (store, born or "empty") for store, born in expected["4"]
    )
    first = visit.rows("Large purchases in opening hours")
    assert first == [[sale, ringgit(amount)] for sale, amount in expected["1"][: len(first)]]
    expect(visit.page.locator("#answer-1 .leaf")).to_contain_text(f"of {len(expected['1']):,}")


def test_every_answer_is_drawn_with_its_exact_figures(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    for name in builtin():
        expect(visit.page.locator(f"#chart-{name} svg")).to_be_visible()
    label = {bar["label"]["tpv"] for bar in visit.page.evaluate(BARS, "3")}
    assert {ringgit(tpv) for _, _, tpv in expected["3"]} == label


def amount_of(text: str) -> Decimal:
    return Decimal(text.removeprefix("RM ").replace(",", ""))


def bars(visit: Visit, name: str, figure: str, size: str = "width") -> list[dict[str, str]]:
    """Return the texts of the bars, after checking that all are drawn to one scale."""
    expect(visit.page.locator(f"#chart-{name} svg")).to_be_visible()
    drawn: list[dict[str, Any]] = visit.page.evaluate(BARS, name)
    most = max(drawn, key=lambda bar: amount_of(bar["label"][figure]))
    for bar in drawn:
        share = float(amount_of(bar["label"][figure]) / amount_of(most["label"][figure]))
        assert bar[size] / most[size] == pytest.approx(share, abs=0.01)
    return [bar["label"] for bar in drawn]


def test_the_bars_stand_for_the_figures_of_the_independent_computation(
    visit: Visit, done: str, expected: dict[str, Rows], tiny_folder: Path
) -> None:
    answer_page(visit, done)
    amounts = [Decimal(amount) for _, amount in expected["1"]]
    columns = bars(visit, "1", "rows", "height")
    for column in columns:
        first, _, beyond = column["final_amount"].partition(" to below ")
        least = amount_of(first.removesuffix(" and more"))
        most = amount_of(beyond) if beyond else Decimal("Infinity")
        assert amount_of(column["rows"]) == sum(least <= amount < most for amount in amounts)
    assert sum(amount_of(column["rows"]) for column in columns) == len(amounts)
    for answer, figure in (("2_1", "sellings_qty"), ("2_2", "profit_sum")):
        drawn = bars(visit, answer, figure)
        assert [
            (bar["year_month_created_at"], bar["item_name"], amount_of(bar[figure])) for bar in drawn
        ] == [(month, item, Decimal(number)) for month, item, number in expected[answer]]
    with load_tables(tiny_folder) as tables:
        ranked = tables.database.execute(RANKED).fetchall()
    customers = bars(visit, "4", "purchases")
    assert len(customers) == len(expected["4"])
    shown = [
        (bar["store_name"], int(bar["rank"]), bar["birthdate"], int(bar["purchases"])) for bar in customers
    ]
    assert sorted(shown) == sorted(ranked)


def test_files_are_downloaded_without_a_token_in_any_address(
    visit: Visit, done: str, expected: dict[str, Rows]
) -> None:
    answer_page(visit, done)
    csv = (
        visit.saved(visit.page.locator("#answer-3").get_by_role("button", name="CSV").click)
        .decode()
        .splitlines()
    )
    assert csv[0] == ",".join(builtin()["3"].shown)
    assert [tuple(line.split(",")) for line in csv[1:]] == expected["3"]
    assert (
        visit.saved(visit.page.locator("#answer-1").get_by_role("button", name="Parquet").click)[:4]
        == b"PAR1"
    )
    report = visit.saved(visit.page.get_by_role("button", name="Report").click)
    assert b"<html" in report.lower()


def test_bad_rows_and_quoted_lines_are_accounted_for(visit: Visit, sound_folder: Path) -> None:
    stores = sound_folder / "stores" / "stores.csv"
    stores.write_text(
        'store_id,store_name\n1,"North\nHall"\n2,"He said ""South"", twice"\n', encoding="utf-8"
    )
    sales = sound_folder / "transactions" / "transactions_202401.csv"
    sales.write_text(sales.read_text() + 'b,1,,"90.25",2024-02-01 10:00:00\nc,2,,much,2024-02-01 10:00:00\n')
    expected = expected_answers(sound_folder, Parameters())

    visit.enter("#/upload")
    visit.choose(sound_folder)
    visit.start("Quotes")
    visit.await_state("Done")
    assert visit.rows("Rejected rows") == [
        [
            "transactions/transactions_202401.csv",
            "4",
            visit.rows("Rejected rows")[0][2],
            "c,2,,much,2024-02-01 10:00:00",
        ]
    ]
    assert "final_amount 'much'" in visit.rows("Rejected rows")[0][2]
    expect(visit.page.locator(".account")).to_contain_text("8 rows read = 7 used + 1 rejected")
    shown = {row[1]: row[2] for row in visit.rows("Total payment value per half-year and store")}
    assert shown == {store: ringgit(tpv) for _, store, tpv in expected["3"]}
    rejected = visit.saved(visit.page.get_by_role("button", name="Download all as CSV").click)
    assert rejected.decode().splitlines()[0] == "table,file,line,reason,row"


def test_markup_in_names_and_rows_is_text_everywhere(visit: Visit, sound_folder: Path) -> None:
    (sound_folder / "stores" / "stores.csv").write_text(f"store_id,store_name\n1,{MARKUP}\n2,South\n")
    (sound_folder / "menu_items" / "menu_items.csv").write_text(f"item_id,item_name\n1,{MARKUP}\n")
    sales = sound_folder / "transactions" / "transactions_202401.csv"
    sales.write_text(sales.read_text() + f"b,1,,{MARKUP},2024-02-01 10:00:00\n")
    file = sales.rename(sales.with_name(f"transactions_{MARKUP}.csv")).name

    visit.enter("#/upload")
    visit.choose(sound_folder)
    expect(visit.table("Tables that were recognized")).to_contain_text(file)
    assert visit.page.evaluate(MADE_OF_TEXT) == 0
    visit.start(MARKUP)
    visit.await_state("Done")
    expect(visit.page.locator("#chart-4 svg")).to_be_visible(timeout=ANSWER_MS)
    expect(visit.page.get_by_role("heading", level=1)).to_have_text(MARKUP)
    expect(visit.page.locator("#chart-2_1 svg")).to_contain_text(MARKUP)
    visit.page.locator("#chart-4 path.f-h6").first.hover()
    assert visit.rows("Total payment value per half-year and store")[0][1] == MARKUP
    (rejected,) = visit.rows("Rejected rows")
    assert rejected[0] == f"transactions/{file}"
    assert MARKUP in rejected[2]
    assert MARKUP in rejected[3]
    assert visit.page.evaluate(MADE_OF_TEXT) == 0
    visit.page.goto(f"{visit.service.url}/#/")
    expect(visit.page.get_by_role("link", name=MARKUP)).to_be_visible()
    assert visit.page.evaluate(MADE_OF_TEXT) == 0
