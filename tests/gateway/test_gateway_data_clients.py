"""The real client and a gateway without a pipeline: months are sent once, interrupted, resumed, at once."""

import gzip
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gateways import Served
from typer.testing import CliRunner

from catalog_tables import TABLES
from kopitiam.cli.app import app
from kopitiam.client.calls import Calls
from kopitiam.client.client import Client
from kopitiam.client.data_sets import DataExports, find_version, send_files
from kopitiam.client.http import Transport
from kopitiam.client.upload import UploadOptions
from kopitiam.contracts.errors import ConfigError, DataMissing, DataSetNotFound, InputError
from kopitiam.synthetic import generate

SCALE = 0.00005  # 730 transactions in 24 months
MONTHS = [f"{year}{month:02}" for year in (2023, 2024, 2025) for month in range(1, 13)][6:30]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("months") / "all"
    generate(folder, SCALE, seed=3)
    return folder


def some(everything: Path, target: Path, months: list[str], names: bool = True) -> Path:
    """A folder with the files of these months, and those of stores and items with `names`."""
    for file in everything.rglob("*.csv"):
        month = file.stem.rpartition("_")[2]
        if month in months or (names and not month.isdigit()):
            copy = target / file.relative_to(everything)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    return target


@pytest.fixture
def served(serve) -> Served:
    return serve()


@pytest.fixture
def client(served: Served):
    with Client(served.client.url) as client:
        yield client


def names_in(client: Client, version: int | None = None) -> set[str]:
    return {file.name for file in client.data_set("sales", version).files}


def test_a_month_is_sent_once_and_another_export_of_it_not_again(
    client: Client, everything, tmp_path
) -> None:
    folder = some(everything, tmp_path / "exports", MONTHS[:2])
    assert client.submit(folder, data="sales").status().data.changes.added == len(names_in(client))
    later = some(everything, folder, MONTHS[2:3])
    changes = client.submit(later, data="sales").status().data.changes
    assert (changes.added, changes.replaced) == (3, 0)  # sales, items and users of one month
    for file in list(folder.rglob("*_20*.csv")):  # compressed, in one folder: the same text
        (tmp_path / "flat").mkdir(exist_ok=True)
        (tmp_path / "flat" / f"{file.name.upper()}.gz").write_bytes(gzip.compress(file.read_bytes()))
    notes: list[str] = []
    again = client.submit(tmp_path / "flat", data="sales", on_note=notes.append)
    use = again.status().data
    assert (use.upload, use.version) == (False, 2)  # it only asks
    assert len(client.data_set("sales").versions) == 2


def test_a_changed_file_replaces_its_month(client: Client, everything, tmp_path) -> None:
    folder = some(everything, tmp_path / "exports", MONTHS[:2])
    client.submit(folder, data="sales")
    file = folder / "transactions" / f"transactions_{MONTHS[0]}.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    run = client.submit(folder, data="sales")
    changes = run.status().data.changes
    assert (changes.added, changes.replaced) == (0, 1)
    assert (changes.rows_added, changes.rows_removed) == (len(lines) - 2, len(lines) - 1)
    assert run.status().tables["transactions"].sealed


def test_a_folder_with_one_month_alone_is_enough(client: Client, everything, tmp_path) -> None:
    one = some(everything, tmp_path / "one", MONTHS[:1], names=False)
    with pytest.raises(InputError, match="no table stores"):
        client.submit(one, data="sales")
    client.submit(some(everything, tmp_path / "first", MONTHS[1:2]), data="sales")
    client.submit(one, data="sales")
    assert {f"transactions_{month}.csv" for month in MONTHS[:2]} <= names_in(client)


def test_columns_are_kept_as_needed_or_all_and_stay_kept(client: Client, everything, tmp_path) -> None:
    def columns_of(name: str) -> set[str]:
        (file,) = [file for file in client.data_set("sales").files if file.name == name]
        return set(file.columns)

    folder = some(everything, tmp_path / "exports", MONTHS[:1])
    client.submit(folder, data="sales")
    first = f"transactions_{MONTHS[0]}.csv"
    assert columns_of(first) == {column.name for column in TABLES["transactions"].columns}
    definition = {
        "name": "methods",
        "title": "Methods",
        "from": "transactions",
        "by": {"method": "payment_method_id"},
        "measure": {"n": "count(*)"},
        "columns": ["method", "n"],
    }
    with pytest.raises(DataMissing, match=rf"transactions\.payment_method_id of {first}"):
        client.ask("sales", questions=[definition])
    run = client.submit(folder, data="sales", columns="all")
    assert run.status().data.changes.replaced == len(client.data_set("sales").files) - len(
        [file for file in client.data_set("sales").files if file.table in {"payment_methods", "vouchers"}]
    )
    assert "payment_method_id" in columns_of(first)
    assert client.ask("sales", questions=[definition]).status().state == "sealed"
    later = some(everything, tmp_path / "later", MONTHS[1:2], names=False)
    client.submit(later, data="sales")  # what a data set keeps of a table, it keeps of later files too
    assert columns_of(f"transactions_{MONTHS[1]}.csv") == columns_of(first)


def test_an_interrupted_upload_is_resumed_where_it_was(served: Served, everything, tmp_path) -> None:
    folder = some(everything, tmp_path / "exports", MONTHS[:3])
    transport = Transport(served.client.url)
    calls, client = Calls(transport), Client.over(transport)

    class Interrupted(Exception):
        pass

    def changes() -> Any:
        return DataExports.open(folder, "sales", TABLES, find_version(calls, "sales"), False).compare()

    def interrupt(progress: Any) -> None:
        if progress.table == "transactions" and progress.chunks == 4:
            raise Interrupted

    run = client.open_upload(changes())
    with pytest.raises(Interrupted):
        send_files(calls, run.id, changes(), UploadOptions(progress=interrupt, chunk_rows=10))
    assert client.data_set("sales").version == 0
    stored = served.gateway.metrics.chunks.labels("transactions", "stored")
    before = stored._value.get()
    send_files(calls, run.id, changes(), UploadOptions(chunk_rows=10))
    files = [file for file in client.data_set("sales").files if file.table == "transactions"]
    assert stored._value.get() == sum(file.chunks for file in files)
    assert 4 <= before < stored._value.get()
    assert run.status().state == "sealed"
    client.close()


def test_a_folder_that_changed_is_not_resumed(client: Client, everything, tmp_path) -> None:
    folder = some(everything, tmp_path / "exports", MONTHS[:1])
    exports = client.data_exports(folder, "sales", TABLES)
    run = client.open_upload(exports.compare())
    client._calls.name_files(run.id, [file.view for file in exports.compare().new])
    file = folder / "transactions" / f"transactions_{MONTHS[0]}.csv"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="the folder has changed"):
        client.submit(folder, resume=run.id)
    with pytest.raises(ConfigError, match="already has"):
        client.submit(folder, resume=run.id, data="sales")


def test_clients_that_send_at_the_same_time_lose_nothing_and_are_told(
    served: Served, everything, tmp_path
) -> None:
    with Client(served.client.url) as client:
        client.submit(some(everything, tmp_path / "first", MONTHS[:1]), data="sales")
    notes: list[str] = []
    ready = threading.Barrier(4)

    def send(month: str) -> int:
        folder = some(everything, tmp_path / month, [month], names=False)
        with Client(served.client.url) as own:
            changes = own.data_exports(folder, "sales", TABLES).compare()
            run = own.open_upload(changes)
            ready.wait()
            run.send_files(changes, on_note=notes.append)
            version = run.status().data.version
            assert version is not None
            return version

    with ThreadPoolExecutor(4) as threads:
        versions = list(threads.map(send, MONTHS[1:5]))
    assert sorted(versions) == [2, 3, 4, 5]
    assert notes and all("another client has made version" in note for note in notes)
    with Client(served.client.url) as client:
        assert {f"transactions_{month}.csv" for month in MONTHS[:5]} <= names_in(client)
        sizes = [len(names_in(client, version)) for version in range(1, 6)]
        assert sizes == [sizes[0] + 3 * number for number in range(5)]


def test_the_commands_show_what_there_is_and_delete_it(served: Served, everything, tmp_path) -> None:
    def kopi(*words: object) -> Any:
        shown = CliRunner().invoke(app, [*map(str, words), "--server", served.client.url])
        assert shown.exception is None, shown.exception
        return shown.output

    folder = some(everything, tmp_path / "exports", MONTHS[:2])
    sent = kopi("submit", folder, "--data", "sales", "--no-wait").split()[-1]
    assert json.loads(kopi("status", sent, "--json"))["data"]["version"] == 1
    assert "data set sales, version 1: " in kopi("status", sent)
    asked = json.loads(kopi("ask", "sales", "--years", "2024", "--no-wait", "--json"))
    assert (asked["state"], asked["questions"]["years"]) == ("sealed", [2024, 2024])
    assert (
        kopi("data").split()[:5]
        == kopi("data", "list").split()[:5]
        == ["data", "set", "since", "version", "files"]
    )
    assert json.loads(kopi("data", "--json"))[0]["version"] == 1
    shown = kopi("data", "show", "sales")
    assert f"transactions_{MONTHS[0]}.csv" in shown and "files of version 1" in shown
    assert len(json.loads(kopi("data", "show", "sales", "--version", 1, "--json"))["versions"]) == 1
    assert "is deleted" in kopi("runs", "delete", asked["run"])
    assert asked["run"] not in kopi("runs") and sent in kopi("runs")
    unsure = CliRunner().invoke(app, ["data", "drop", "sales", "--server", served.client.url])
    assert isinstance(unsure.exception, ConfigError)
    assert json.loads(kopi("data", "drop", "sales", "--yes", "--json")) == {"name": "sales", "runs": 1}
    assert kopi("data") == "no data sets\n"
    for words in (["data", "show", "sales"], ["ask", "sales"]):
        gone = CliRunner().invoke(app, [*words, "--server", served.client.url])
        assert isinstance(gone.exception, DataSetNotFound), gone.output
