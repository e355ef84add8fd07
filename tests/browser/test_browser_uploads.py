"""Interrupted uploads, and folders that cannot be sent."""

import csv
import gzip
import io
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Route, expect
from visits import BEN, Visit

from acceptance.services import Service

CHUNKS = "**/chunks/*"


def hold_after(context: BrowserContext, passing: int) -> None:
    """Let this many chunks reach the gateway and abort the others."""
    seen = 0

    def decide(route: Route) -> None:
        nonlocal seen
        seen += 1
        if seen <= passing:
            route.continue_()
        else:
            route.abort("connectionrefused")

    context.route(CHUNKS, decide)


def begin(visit: Visit, context: BrowserContext, folder: Path, label: str, passing: int) -> str:
    visit.enter("#/upload")
    visit.choose(folder)
    visit.expects_failed_requests = True
    hold_after(context, passing)
    run = visit.start(label)
    expect(visit.page.locator(".path .place", has_text="Gateway").locator("b")).to_have_text(str(passing))
    return run


@pytest.mark.long
def test_after_a_reload_an_upload_sends_only_missing_chunks(
    visit: Visit, context: BrowserContext, service: Service, tiny_folder: Path
) -> None:
    run = begin(visit, context, tiny_folder, "Reloaded", passing=12)
    visit.page.on("dialog", lambda dialog: dialog.accept())  # confirm leaving the page during an upload
    stored = service.outcomes("stored")
    visit.page.reload()
    expect(visit.page.locator("main .banner")).to_contain_text("This upload was interrupted")
    context.unroute(CHUNKS)
    visit.page.get_by_role("link", name="Choose the folder").click()
    expect(visit.page.locator("main .banner")).to_contain_text("Reloaded")
    visit.choose(tiny_folder)
    visit.page.get_by_role("button", name="Continue where it stopped").click()
    assert visit.run_shown() == run
    visit.await_state("Done")
    assert service.outcomes("stored") - stored == service.expected_chunks(run) - 12
    assert service.outcomes("same") == 0
    assert service.outcomes("conflict") == 0


@pytest.mark.long
def test_an_upload_resumes_by_itself_after_the_gateway_was_away(
    visit: Visit, context: BrowserContext, service: Service, tiny_folder: Path
) -> None:
    run = begin(visit, context, tiny_folder, "Killed", passing=10)
    expect(visit.page.locator("main .banner").filter(has_text="Waiting for the gateway")).to_be_visible()
    service.kill()
    expect(visit.page.locator("#warning")).to_contain_text("does not answer")
    service.start()
    expect(visit.page.locator("#warning")).to_be_hidden()
    expect(visit.page.locator(".title .badge")).to_have_text("Uploading")
    context.unroute(CHUNKS)
    visit.await_state("Done")
    assert service.outcomes("stored") == service.expected_chunks(run) - 10
    expect(visit.page.locator("main .banner").filter(has_text="Waiting for the gateway")).to_have_count(0)


def test_a_second_tab_does_not_interrupt_an_upload(
    visit: Visit, context: BrowserContext, service: Service, tiny_folder: Path
) -> None:
    run = begin(visit, context, tiny_folder, "Two tabs", passing=5)
    other = Visit(context.new_page(), service)
    other.enter(f"#/runs/{run}")
    expect(other.page.locator(".title .badge")).to_have_text("Uploading")
    expect(other.page.locator("main .banner")).to_have_count(0)
    for tab in (other, visit):
        tab.page.bring_to_front()
        tab.page.goto(f"{service.url}/#/upload")
        tab.choose(tiny_folder)
        expect(tab.page.get_by_role("button", name="Start", exact=True)).to_be_visible()
        expect(tab.page.get_by_role("button", name="Continue where it stopped")).to_have_count(0)
        expect(tab.page.locator("main .banner")).to_have_count(0)
    other.require_quiet()
    service.http.delete(f"/api/v1/runs/{run}")


def test_the_tab_of_another_person_keeps_unfinished_uploads(
    visit: Visit, context: BrowserContext, service: Service, tiny_folder: Path
) -> None:
    run = begin(visit, context, tiny_folder, "Anna's", passing=4)
    ben = Visit(context.new_page(), service, BEN)
    ben.enter("#/upload")
    ben.choose(tiny_folder)
    expect(ben.page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    assert [request.url for request in ben.requests if run in request.url] == []
    assert run in ben.page.evaluate("() => localStorage.getItem('kopitiam.uploads')")
    assert BEN not in str(ben.page.evaluate("() => ({...localStorage})"))
    ben.require_quiet()
    service.http.delete(f"/api/v1/runs/{run}")


def test_a_run_is_ended_only_after_a_confirmation(
    visit: Visit, context: BrowserContext, service: Service, tiny_folder: Path
) -> None:
    run = begin(visit, context, tiny_folder, "Regretted", passing=3)
    dialog = visit.page.get_by_role("dialog", name="End this run?")
    visit.page.get_by_role("button", name="End this run").click()
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    visit.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert service.status(run)["state"] == "open"
    visit.page.get_by_role("button", name="End this run").click()
    dialog.get_by_role("button", name="End it").click()
    visit.await_state("Ended")
    expect(visit.page.locator("main .banner")).to_contain_text("ended by force")
    expect(visit.page.get_by_role("button", name="End this run")).to_be_hidden()
    assert (service.status(run)["state"], service.status(run)["error"]) == ("ended", "cancelled")


def test_a_folder_that_is_dropped_is_recognized_and_answered(
    visit: Visit, service: Service, sound_folder: Path
) -> None:
    visit.enter("#/upload")
    visit.drop(sound_folder)
    recognized = visit.page.locator("main .card", has_text="stores.csv")
    expect(recognized).to_contain_text("transaction_items_202401.csv")
    run = visit.start("Dropped")
    visit.await_state("Done")
    assert {name: table["rows"] for name, table in service.status(run)["tables"].items()} == {
        "stores": 2,
        "menu_items": 1,
        "users": 1,
        "transactions": 1,
        "transaction_items": 1,
    }


@pytest.mark.long
def test_a_name_of_1025_characters_is_rejected_with_a_reason_and_the_rest_is_answered(
    visit: Visit, service: Service, sound_folder: Path
) -> None:
    """The browser cuts the file by rows; the gateway checks the cells."""
    longest, too_long = "\N{LATIN SMALL LETTER E WITH ACUTE}" * 1024, "\N{HOT BEVERAGE}" * 1025
    stores = sound_folder / "stores" / "stores.csv"
    stores.write_text(f"store_id,store_name\n1,{longest}\n2,{too_long}\n", encoding="utf-8")
    sales = sound_folder / "transactions" / "transactions_202401.csv"
    sales.write_text(sales.read_text() + "b,2,,90.25,2024-02-01 10:00:00\n")

    visit.enter("#/upload")
    visit.choose(sound_folder)
    visit.expects_failed_requests = True  # a busy machine has provisional answers too late: 503
    run = visit.start("Long name")
    visit.await_state("Done")
    ((file, line, reason, row),) = visit.rows("Rejected rows")
    assert (file, line) == ("stores/stores.csv", "3")
    assert "store_name" in reason and "a text of at most 1,024 characters" in reason
    assert row.startswith("2,\N{HOT BEVERAGE}")
    expect(visit.page.locator(".account")).to_contain_text("7 rows read = 6 used + 1 rejected")
    status = service.status(run)
    assert (status["tables"]["stores"]["rows"], status["rejected"], status["unmatched"]) == (1, 1, 1)
    shown = visit.rows("Total payment value per half-year and store")
    assert {store: tpv for _, store, tpv in shown} == {longest: "RM 80.50", "2 not in its table": "RM 90.25"}


@pytest.mark.long
def test_files_may_be_dropped_without_their_folders(visit: Visit, sound_folder: Path) -> None:
    files = sorted(sound_folder.glob("*/*.csv"))
    visit.enter("#/upload")
    visit.drop(*files)
    for file in files:
        expect(visit.page.locator("main .card", has_text="stores.csv")).to_contain_text(file.name)
    expect(visit.page.get_by_role("button", name="Start", exact=True)).to_be_enabled()


@pytest.mark.long
def test_an_export_flat_compressed_in_capitals_and_with_semicolons_is_answered(
    visit: Visit, service: Service, sound_folder: Path
) -> None:
    sales = sound_folder / "transactions" / "transactions_202401.csv"
    sales.write_text(sales.read_text().replace("\na,", '\n"a;\n,b",'))
    sales.with_name("transactions_202403.csv").write_text(sales.read_text().splitlines()[0] + "\n")
    for file in sound_folder.glob("*/*.csv"):
        with file.open(newline="") as opened:
            header, *rows = csv.reader(opened)
        text = io.StringIO()
        csv.writer(text, delimiter=";").writerows([[name.upper() for name in header], *rows])
        (sound_folder / f"{file.name.upper()}.gz").write_bytes(gzip.compress(text.getvalue().encode()))
        file.unlink()
    for folder in [entry for entry in sound_folder.iterdir() if entry.is_dir()]:
        folder.rmdir()

    visit.enter("#/upload")
    visit.choose(sound_folder)
    notes = visit.page.locator("main .notes")
    expect(notes).to_contain_text("Files without a folder of their table are taken by their names")
    expect(notes).to_contain_text("Names in other letters are read as")
    expect(notes).to_contain_text("transactions: fields are separated by semicolons.")
    expect(notes).to_contain_text("transactions: no file for 2024-02.")
    run = visit.start("As it comes")
    visit.await_state("Done")
    assert [table["rows"] for table in service.status(run)["tables"].values()] == [2, 1, 1, 1, 1]
    assert visit.rows("Large purchases in opening hours")[0][0] == "a;\n,b"


USERS = b"user_id,birthdate\n7,1990-01-01\n"
ZIPPED = gzip.compress(USERS, mtime=0)  # the time would be in the names of tests, which all workers must know


@pytest.mark.parametrize(
    ("file", "content", "flaw"),
    [
        ("users/users_202401.csv", None, "No table users"),
        ("users/users_202401.csv", b"user_id,born\n7,1990-01-01\n", "line 1: no column birthdate"),
        ("stores/stores.csv", b"store_id,store_name,store_id\n1,North,1\n", "column store_id is there twice"),
        ("stores/stores.csv", b"", "stores/stores.csv: the file is empty"),
        ("users/users_202401.csv.gz", ZIPPED, "users_202401.csv is there twice"),
        ("users/users_202402.csv.gz", ZIPPED[:-3], "cannot be expanded here"),
        ("users/users_202402.csv.gz", ZIPPED * 2, "compressed in several pieces"),
        ("users/users_202402.csv.zst", USERS, "Zstandard cannot be expanded in the browser; unpack it first"),
    ],
)
def test_a_folder_that_cannot_be_sent_is_refused_before_the_upload(
    visit: Visit, sound_folder: Path, file: str, content: bytes | None, flaw: str
) -> None:
    if content is None:
        (sound_folder / file).unlink()
    else:
        (sound_folder / file).write_bytes(content)
    visit.enter("#/upload")
    visit.choose(sound_folder)
    expect(visit.page.get_by_role("alert").filter(has_text=flaw)).to_be_visible()
    expect(visit.page.get_by_role("button", name="Start", exact=True)).to_have_count(0)
    assert [request.method for request in visit.requests if request.method != "GET"] == []
    # The browser reports the same folder as a new choice only if none is selected.
    expect(visit.page.locator("#folder")).to_have_value("")


CUTS = """
async ({text, bytes, rows}) => {
  const place = document.querySelector("script[type=module]").src.replace("app.js", "upload/cut.js");
  const { cuts, headerOf } = await import(place);
  const file = new File([new TextEncoder().encode(text)], "a.csv");
  const read = new TextDecoder();
  const found = [read.decode(await headerOf(file))];
  const bounds = {bytes, rows, longest: 4096};
  for await (const cut of cuts(file, bounds)) found.push(read.decode(cut.data), cut.line);
  return found;
}
"""
TEXTS = [
    "a,b\n1,2\n3,4\n5,6\n7,8\n9,10\n11,12",
    'a,b\r\n"x\ny",2\r\n3,"4""\n"\r\n5,6\n\n7,8"9"\n',
    '"a\nz",b\n1,2\n',
    "a,b\n",
    "a,b",
]


def test_files_are_cut_between_rows_for_any_bounds(visit: Visit) -> None:
    visit.enter()
    for text in TEXTS:
        for size, rows in [(1, 1), (2, 100), (5, 2), (8, 100), (16, 100), (64, 1)]:
            given = {"text": text, "bytes": size, "rows": rows}
            header, *found = visit.page.evaluate(CUTS, given)
            parts, lines = found[::2], found[1::2]
            assert header + "".join(parts) == text
            begins = [len(header) + sum(map(len, parts[:n])) for n in range(len(parts))]
            assert lines == [1 + text.count("\n", 0, begin) for begin in begins]
            for part in parts[:-1]:
                assert part.endswith("\n")
                assert part.count('"') % 2 == 0 or '8"9"' in part
            assert all(part.count("\n") <= rows or '"' in part for part in parts)
