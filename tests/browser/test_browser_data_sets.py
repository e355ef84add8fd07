"""Data sets in a real browser: sent, grown, asked, compared, queried, dropped; rows behind a figure."""

import json
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from playwright.sync_api import Route, expect
from prepared_runs import write_done_run
from visits import BareGateway, Visit

from made_answers import small_answers

SALES = "transaction_id,store_id,user_id,final_amount,created_at\n"


def send(visit: Visit, folder: Path, name: str, label: str) -> str:
    """Upload a folder into a data set."""
    visit.choose(folder)
    field = visit.page.get_by_label("Data set", exact=True)
    field.fill(name)
    field.press("Tab")
    return visit.start(label)


def sent_files(visit: Visit) -> list[str]:
    """The files whose chunks were sent, as the requests name them."""
    puts = [request.url for request in visit.requests if request.method == "PUT"]
    return sorted(re.sub(r".*file_name=\w+%2F([^&]*).*", r"\1", url) for url in puts)


def body_of(visit: Visit, path: str) -> Any:
    """The body of the last POST to this path."""
    posts = [request for request in visit.requests if request.method == "POST" and request.url.endswith(path)]
    return json.loads(posts[-1].post_data or "")


def test_a_data_set_grows_by_the_files_that_differ_and_is_asked_and_dropped(
    guest: Visit, sound_folder: Path
) -> None:
    page = guest.page
    guest.open("#/upload")
    send(guest, sound_folder, "penang", "January")
    guest.await_state("Processing")
    assert len(sent_files(guest)) == 5
    guest.requests.clear()
    sales = sound_folder / "transactions"
    sales.joinpath("transactions_202401.csv").write_text(SALES + "a,1,7,99.5,2024-01-01 10:00:00\n")
    sales.joinpath("transactions_202403.csv").write_text(SALES + "b,2,,1.25,2024-03-01 10:00:00\n" * 2)
    guest.open("#/upload?data=penang")
    send(guest, sound_folder, "penang", "March, and January again")
    guest.await_state("Processing")
    assert sent_files(guest) == ["transactions_202401.csv", "transactions_202403.csv"]
    text = "penang, version 2: 1 file added, 1 replaced; 3 rows added, 1 taken away."
    expect(page.locator(".head")).to_contain_text(text)

    page.get_by_role("link", name="Data sets").click()
    assert guest.rows("Data sets")[0][:5] == ["penang", "2", "2", "6", "8"]
    page.get_by_role("link", name="penang").click()
    months = page.get_by_role("region", name="transactions: rows by month", exact=True)
    expect(months.locator("tbody td").nth(2)).to_have_text("2added")
    texts = months.locator("tbody td").all_text_contents()
    assert texts == ["1replaced", "–missing", "2added", *[""] * 9]
    expect(page.get_by_label("From which version to version 2").locator("option")).to_have_count(1)
    page.get_by_role("link", name="Version 1", exact=True).click()
    expect(page.get_by_text("Version 1: 5 files, 6 rows")).to_be_visible()

    page.get_by_role("link", name="Ask", exact=True).click()
    page.get_by_text("Parameters").click()
    page.get_by_label("To year").fill("2024")
    page.get_by_label("Best-selling product per month").uncheck()
    page.get_by_role("button", name="Ask", exact=True).click()
    asked = guest.run_shown()
    request = body_of(guest, "/runs")
    assert (request["data"], request["questions"]["years"]) == (
        {"name": "penang", "version": 1, "upload": False},
        [2024, 2024],
    )
    assert request["questions"]["ask"] == ["1", "2_2", "3", "4"]
    page.get_by_role("link", name="Ask again").click()
    expect(page.get_by_label("To year")).to_have_value("2024")
    expect(page.get_by_label("Best-selling product per month")).not_to_be_checked()

    guest.open("#/data/penang")
    page.get_by_role("button", name="Drop").click()
    yes = page.get_by_role("button", name="Drop it")
    expect(yes).to_be_disabled()
    page.get_by_label("Its name, to confirm").fill("penang")
    yes.click()
    expect(page.get_by_text("No data sets yet")).to_be_visible()
    guest.expects_failed_requests = True
    guest.open(f"#/runs/{asked}")
    expect(page.get_by_role("heading", name="No such run")).to_be_visible()
    guest.open("#/data/penang")
    expect(page.get_by_role("heading", name="No such data set")).to_be_visible()


def test_two_runs_stand_side_by_side_with_differences_and_percentages(
    guest: Visit, bare_gateway: BareGateway
) -> None:
    before = small_answers(store="\u202eevil")
    sums = [("2024-H1", 1, "\u202eevil", Decimal("115000"), True), *before.tables["3"][2:]]
    after = replace(before, tables=before.tables | {"3": sums})
    runs = [write_done_run(bare_gateway.home, "Side", made, "anybody") for made in (before, after)]
    guest.open(f"#/changes/{runs[0]}/{runs[1]}")
    card = guest.page.get_by_role("article", name="Total payment value per half-year and store")
    expect(card).to_contain_text("1 gone, 1 changed, 1 the same.")
    cells = ["changed", "2024-H1", "\u202eevil", "RM 115,922.885", "RM 115,000.00", "-RM 922.885", "-0.8"]
    assert guest.rows("Total payment value per half-year and store")[1] == cells
    expect(card.locator("bdi", has_text="evil")).to_have_count(1)


def test_a_run_without_a_data_set_says_that_its_rows_are_gone(
    guest: Visit, bare_gateway: BareGateway
) -> None:
    run = write_done_run(bare_gateway.home, "Alone", small_answers(), "anybody")
    guest.open(f"#/runs/{run}")
    expect(guest.page.locator(".notice")).to_contain_text("The rows behind these figures are gone")
    expect(guest.page.locator("a.behind")).to_have_count(0)
    guest.page.get_by_role("link", name="Ask again").click()
    expect(guest.page.get_by_role("heading", name="The files of this run are gone")).to_be_visible()
    guest.expects_failed_requests = True
    guest.open(f"#/runs/{run}/behind/3?key=2024-H1&key=1")
    expect(guest.page.get_by_role("heading", name="These rows are gone")).to_be_visible()


def test_a_figure_leads_to_the_rows_behind_it(visit: Visit, sound_folder: Path) -> None:
    more = "b,1,,0.25,2024-02-01 10:00:00\nc,2,,9,2024-02-01 10:00:00\nd,1,,9,2024-07-01 10:00:00\n"
    with sound_folder.joinpath("transactions", "transactions_202401.csv").open("a") as sales:
        sales.write(more)
    visit.enter("#/upload")
    visit.expects_failed_requests = True  # a busy machine has provisional answers too late: 503
    run = send(visit, sound_folder, "ipoh", "Drilled")
    visit.await_state("Done")
    visit.page.get_by_role("link", name="RM 80.75").click()
    visit.page.wait_for_url(re.compile(rf"#/runs/{run}/behind/3\?key=2024-H1&key=1"))
    expect(visit.page.locator(".answers tbody tr")).to_have_count(2, timeout=90_000)
    rows = visit.rows("Rows behind 2024-H1, 1: Total payment value per half-year and store")
    assert rows == [
        ["a", "1", "7", "RM 80.50", "2024-01-01 10:00:00"],
        ["b", "1", "empty", "RM 0.25", "2024-02-01 10:00:00"],
    ]


def test_a_query_shows_its_rows_and_its_flaw(guest: Visit, sound_folder: Path) -> None:
    guest.open("#/upload")
    send(guest, sound_folder, "melaka", "Queried")
    guest.await_state("Processing")
    state = {
        "query": "0" * 32,
        "version": 1,
        "columns": [],
        "rows": 0,
        "cut": False,
        "seconds": None,
        "error": None,
    }
    kinds = [{"name": "store_name", "kind": "text"}, {"name": "total", "kind": "decimal"}]
    results = [
        state | {"state": "done", "seconds": 0.25, "columns": kinds, "rows": 1},
        state | {"state": "failed", "seconds": 0.1, "error": "SQL: there is no column x"},
    ]

    def answer(route: Route) -> None:
        method, url = route.request.method, route.request.url
        if method == "POST":
            return route.fulfill(status=202, json=state | {"state": "waiting"})
        if "/rows?" in url:
            page = {"columns": ["store_name", "total"], "rows": [["\u202eNorth", "80.5000"]], "offset": 0}
            return route.fulfill(json=page | {"matched": 1, "total": 1})
        return route.fulfill(json=results.pop(0))

    guest.page.route("**/api/v1/data/melaka/sql**", answer)
    guest.page.route("**/api/v1/data/melaka/sql/**", answer)
    guest.open("#/data/melaka")
    guest.page.get_by_role("link", name="SQL", exact=True).click()
    expect(guest.page.get_by_text("store_id, store_name", exact=True)).to_be_visible()
    field = guest.page.get_by_role("textbox", name="Query")
    field.fill("select 1")
    field.press("Control+Enter")
    expect(guest.page.get_by_text("1 row of version 1, in 0.3 s.")).to_be_visible()
    assert guest.rows("Rows of the query") == [["\u202eNorth", "80.5000"]]
    assert body_of(guest, "/sql") == {"sql": "select 1", "version": 1}
    guest.page.get_by_role("button", name="Run").click()
    expect(guest.page.get_by_role("alert").filter(has_text="there is no column x")).to_be_visible()
