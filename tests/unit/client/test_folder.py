"""A folder of exports: which files belong to which table, and flaws by file and line."""

import os
import subprocess
import sys

import pytest

from catalog_tables import TABLES
from kopitiam.client import folder as folder_module
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.contracts.errors import InputError

NOBODY = 65534
LOOK = f"""
import os
from pathlib import Path
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.contracts.errors import InputError
from kopitiam.questions.question_set import QuestionSet
tables = QuestionSet.of_catalog().tables
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
try:
    check_structure(open_folder(Path("exports"), tables))
except InputError as error:
    print(error)
"""


def refusal(path):
    with pytest.raises(InputError) as refused:
        check_structure(open_folder(path, TABLES))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_sound_folder_is_opened_with_all_its_files(sound_folder):
    folder = open_folder(sound_folder, TABLES)
    checked = []
    check_structure(folder, checked.append)
    assert set(folder.files) == set(TABLES)
    assert sum(checked) == folder.total_bytes == sum(p.stat().st_size for p in sound_folder.rglob("*.csv"))


def test_folders_may_be_numbered_and_other_entries_are_ignored(sound_folder):
    sound_folder.joinpath("transactions").rename(sound_folder / "4.transactions")
    sound_folder.joinpath("stores").rename(sound_folder / "02. stores")
    sound_folder.joinpath("vouchers").mkdir()
    sound_folder.joinpath("users_old").mkdir()
    sound_folder.joinpath("users.csv").write_text("not looked at")
    sound_folder.joinpath("4.transactions", "notes.csv").write_text("not looked at")
    sound_folder.joinpath("4.transactions", "transactions_202401.csv.bak").write_text("not looked at")
    folder = open_folder(sound_folder, TABLES)
    assert folder.files["transactions"][0].shown == "4.transactions/transactions_202401.csv"
    assert folder.files["stores"][0].shown == "02. stores/stores.csv"
    assert [len(files) for files in folder.files.values()] == [1] * len(TABLES)


def test_files_of_a_table_come_in_order_of_name(sound_folder):
    for month in ("202403", "202312", "202402"):
        sound_folder.joinpath("users", f"users_{month}.csv").write_text("user_id,birthdate\n")
    names = [file.name for file in open_folder(sound_folder, TABLES).files["users"]]
    assert names == [f"users_{month}.csv" for month in ("202312", "202401", "202402", "202403")]


def test_a_file_name_that_is_not_utf8_can_still_be_shown(sound_folder):
    odd = sound_folder / "users" / os.fsdecode(b"users_a\xf1o.csv")
    odd.write_text("user_id,birthdate\n")
    folder = open_folder(sound_folder, TABLES)
    assert folder.files["users"][-1].shown.encode() == "users/users_a\ufffdo.csv".encode()


def test_a_header_without_rows_is_sound(sound_folder):
    sound_folder.joinpath("users", "users_202401.csv").write_text("user_id,birthdate")
    folder = open_folder(sound_folder, TABLES)
    check_structure(folder)
    assert folder.files["users"][0].size == 17


def test_a_missing_folder_is_refused(tmp_path):
    assert refusal(tmp_path / "none") == f"{tmp_path / 'none'}: no such folder"


def test_a_file_in_place_of_the_folder_is_refused(sound_folder):
    file = sound_folder / "stores" / "stores.csv"
    assert refusal(file) == f"{file}: is a file, not a folder"


def test_an_empty_folder_is_refused(tmp_path):
    assert refusal(tmp_path).startswith(
        f"{tmp_path}: the folder is empty; expected folders stores, menu_items"
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_missing_table_is_refused_by_name(sound_folder, table):
    sound_folder.joinpath(table).rename(sound_folder / "else")
    assert refusal(sound_folder).startswith(f"{sound_folder}: no table {table}; expected a folder {table}/")


def test_a_table_with_two_folders_is_refused(sound_folder):
    sound_folder.joinpath("3.users").mkdir()
    assert refusal(sound_folder) == f"{sound_folder}: table users is there twice: 3.users/ and users/"


def test_a_table_without_csv_files_is_refused(sound_folder):
    sound_folder.joinpath("users", "users_202401.csv").rename(sound_folder / "users" / "people.csv")
    assert refusal(sound_folder).startswith(f"{sound_folder / 'users'}: no CSV file here; expected users.csv")


def test_a_broken_link_is_refused(sound_folder):
    link = sound_folder / "users" / "users_202402.csv"
    link.symlink_to("gone.csv")
    assert refusal(sound_folder) == f"{link}: cannot be read: No such file or directory"


def test_a_folder_in_place_of_a_file_is_refused(sound_folder):
    odd = sound_folder / "users" / "users_202402.csv"
    odd.mkdir()
    assert refusal(sound_folder) == f"{odd}: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", ": the file is empty, without even a header line"),
        (b"user_id,born\n1,\n", ", line 1: no column birthdate (found: user_id, born)"),
        (b"\n\n", ", line 1: no column user_id, birthdate (found: )"),
        (b"user_id,birthdate,user_id\n1,,1\n", ", line 1: column user_id is there twice"),
        (b"user_id,birthdate\n1,\n\x00\x01", ", line 3: a binary file, not CSV"),
        (
            b"user_id,birthdate\n1,\n2,Jos\xe9\n3,\n",
            ", line 3, column birthdate: not UTF-8 text; save the file as UTF-8",
        ),
        (
            b'user_id,"birth\ndate",x\n1,",\n""a,\nJos\xe9",2\n',
            ", line 5, column birth date: not UTF-8 text; save the file as UTF-8",
        ),
        (b"\xe9", ", line 1, column 1: not UTF-8 text: it ends inside a character"),
        (b"\n1,2,\xff\n", ", line 2, column 3: not UTF-8 text; save the file as UTF-8"),
        (b'user_id,birthdate\n1,"\xff\n', ", line 2: not UTF-8 text; save the file as UTF-8"),
        (b"user_id,n\xe9\n", ", line 1, column 2: not UTF-8 text; save the file as UTF-8"),
        (
            "user_id,birthdate\n1,é".encode()[:-1],
            ", line 2, column birthdate: not UTF-8 text: it ends inside a character",
        ),
    ],
)
@pytest.mark.parametrize("scan_bytes", [1, 5, 1 << 20])
def test_a_flaw_in_a_file_is_refused_with_file_line_and_column(
    sound_folder, monkeypatch, content, complaint, scan_bytes
):
    monkeypatch.setattr(folder_module, "_SCAN_BYTES", scan_bytes)
    sound_folder.joinpath("users", "users_202402.csv").write_bytes(content)
    assert refusal(sound_folder) == f"users/users_202402.csv{complaint}"


@pytest.mark.parametrize(
    ("content", "line"), [(b"\x89PNG\r\n\x1a\n\x00\x00", 3), ("user_id,birthdate\n".encode("utf-16"), 1)]
)
def test_images_and_utf16_are_refused_as_binary(sound_folder, content, line):
    sound_folder.joinpath("users", "users_202402.csv").write_bytes(content)
    assert refusal(sound_folder) == f"users/users_202402.csv, line {line}: a binary file, not CSV"


@pytest.mark.parametrize("scan_bytes", range(1, 40))
def test_the_line_of_a_bad_byte_is_right_wherever_the_file_is_cut(sound_folder, monkeypatch, scan_bytes):
    monkeypatch.setattr(folder_module, "_SCAN_BYTES", scan_bytes)
    content = "user_id,birthdate\n1,\n😀".encode() + b"\xff\n2,\n"
    sound_folder.joinpath("users", "users_202402.csv").write_bytes(content)
    assert ", line 3, column user_id: not UTF-8 text" in refusal(sound_folder)


def test_a_header_quote_left_open_is_refused(sound_folder):
    file = sound_folder / "users" / "users_202401.csv"
    file.write_text('user_id,"birthdate\n1,\n')
    assert refusal(sound_folder) == f"{file}, line 1: a quote is opened in the header and not closed"


@pytest.mark.parametrize("forbidden", ["exports", "exports/users", "exports/users/users_202401.csv"])
def test_an_unreadable_file_or_folder_is_refused(sound_folder, tmp_path, forbidden):
    tmp_path.chmod(0o755)
    tmp_path.joinpath(forbidden).chmod(0o000)
    try:
        done = subprocess.run(
            [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    finally:
        tmp_path.joinpath(forbidden).chmod(0o755)
    assert done.stdout == f"{forbidden}: cannot be read: Permission denied\n"
