"""A folder that fills is sent to a data set: each file once, whatever happens to the watch in between."""

from pathlib import Path

import pytest
from gateways import Served

from kopitiam.client.client import Client
from kopitiam.client.upload import send_parts
from kopitiam.client.watching import Completeness, FolderWatch
from kopitiam.contracts.errors import InputError
from kopitiam.questions.question_set import QuestionSet

SETTLE = 30
FEBRUARY = "transactions/transactions_202402.csv"
ROWS = "transaction_id,store_id,user_id,final_amount,created_at\nb,1,7,90,2024-02-01 10:00:00\n"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch whose client and clock the test has in its hands."""

    def __init__(self, served: Served, folder: Path, clock: Clock) -> None:
        self.client = Client(str(served.client.http.base_url))
        self.clock, self.notes = clock, []
        tables = QuestionSet.of_catalog().tables
        completeness = Completeness(SETTLE)
        self.watch = FolderWatch(self.client, folder, "sales", tables, {}, completeness, clock=clock)

    def look(self):
        return self.watch.look(self.notes.append)

    def settle(self):
        """Look twice, with enough time in between for all files to settle."""
        first = self.look()
        self.clock.now += SETTLE
        return first or self.look()

    def versions(self) -> list[list[str]]:
        return [version.added + version.replaced for version in self.client.data_set("sales").versions][::-1]


@pytest.fixture
def gateway(serve) -> Served:
    return serve()


def test_files_are_sent_when_they_are_complete_and_only_once(gateway: Served, sound_folder: Path) -> None:
    watched = Watched(gateway, sound_folder, Clock())
    assert watched.look() is None
    assert watched.client.data_sets() == []
    watched.clock.now += SETTLE
    assert watched.look().status().data.version == 1
    assert watched.settle() is None
    (sound_folder / FEBRUARY).write_text(ROWS)
    assert watched.look() is None, "it may still be written"
    watched.clock.now += SETTLE
    assert watched.look().status().data.version == 2
    again = Watched(gateway, sound_folder, Clock())
    assert again.settle() is None, "a watch that is started again finds everything in the data set"
    assert watched.versions()[1:] == [["transactions/transactions_202402.csv"]]


def test_a_watch_that_was_killed_continues_its_run(
    gateway: Served, sound_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    first = Watched(gateway, sound_folder, Clock())
    with monkeypatch.context() as patch:
        patch.setattr("kopitiam.client.data_sets._seal", killed)
        with pytest.raises(KeyboardInterrupt):
            first.settle()
    (started,) = first.client.runs()
    run = Watched(gateway, sound_folder, Clock()).settle()
    assert run.id == started.run
    assert len(list(first.client.runs())) == 1


def test_a_watch_starts_anew_when_its_run_was_ended_meanwhile(
    gateway: Served, sound_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(gateway, sound_folder, Clock())
    with monkeypatch.context() as patch:
        patch.setattr("kopitiam.client.data_sets._seal", lambda *_: None)
        watched.settle().cancel()
    again = Watched(gateway, sound_folder, Clock())
    assert again.settle().status().data.version == 1


def test_a_flaw_is_reported_until_the_file_changes(gateway: Served, sound_folder: Path) -> None:
    watched = Watched(gateway, sound_folder, Clock())
    watched.settle()
    (sound_folder / FEBRUARY).write_text("transaction_id,store_id\n")
    with pytest.raises(InputError, match=r"transactions_202402\.csv, line 1: no column"):
        watched.settle()
    assert watched.settle() is None
    (sound_folder / FEBRUARY).write_text(ROWS)
    assert watched.settle().status().data.version == 2


def test_a_file_that_changes_while_it_is_sent_makes_no_version(
    gateway: Served, sound_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(gateway, sound_folder, Clock())

    def send_and_change(*arguments: object) -> None:
        send_parts(*arguments)
        with (sound_folder / "stores/stores.csv").open("a") as file:
            file.write("3,East\n")

    with monkeypatch.context() as patch:
        patch.setattr("kopitiam.client.data_sets.send_parts", send_and_change)
        with pytest.raises(InputError, match=r"stores\.csv: was changed while it was sent"):
            watched.settle()
    assert watched.settle().status().data.version == 1
    assert [file.rows for file in watched.client.data_set("sales").files if file.table == "stores"] == [3]


def test_a_new_data_set_waits_for_a_file_of_every_table(gateway: Served, sound_folder: Path) -> None:
    watched = Watched(gateway, sound_folder, Clock())
    watched.look()
    watched.clock.now += SETTLE
    (sound_folder / "users/users_202401.csv").write_text("user_id,birthdate\n7,1990-01-01\n8,1991-01-01\n")
    assert watched.look() is None
    assert watched.notes == ["waiting for files of users"]
    watched.clock.now += SETTLE
    assert watched.look().status().data.version == 1
