"""Folders and CSV files of every layout: numbered, split, reordered, with other line ends and quotes."""

import pytest

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.verification import expected_answers
from kopitiam.verification.rows import RowCount, load_tables


def store_names(folder):
    with load_tables(folder) as tables:
        names = tables.database.sql("SELECT store_name FROM stores ORDER BY store_id").fetchall()
        return [name for (name,) in names]


def write_stores(shop, content):
    shop.write()
    shop.folder.joinpath("stores", "stores.csv").write_bytes(content)
    return shop.folder


def test_folders_may_be_numbered_and_tables_split_into_files_of_other_column_orders(shop):
    shop.sell()
    folder = shop.write()
    folder.joinpath("transactions").rename(folder / "4. transactions")
    folder.joinpath("4. transactions", "transactions_202404.csv").write_text(
        "created_at,extra,final_amount,user_id,store_id,transaction_id\n2024-04-01 10:00:00,?,99.5,,2,other\n"
    )
    folder.joinpath("4. transactions", "notes.csv").write_text("not,a\ntable,at all\n")
    assert expected_answers(folder, Parameters())["1"] == [("other", "99.5"), ("t", "80.0")]


def test_folder_names_are_taken_literally(shop, tmp_path):
    shop.sell()
    odd = shop.write().rename(tmp_path / "it's [1]*?")
    assert expected_answers(odd, Parameters())["1"] == [("t", "80.0")]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"\xef\xbb\xbfstore_id,store_name\n1,A\n2,B\n", ["A", "B"]),
        (b"store_id,store_name\r\n1,A\r\n\r\n2,B\r\n", ["A", "B"]),
        (b"store_id,store_name\r1,A\r2,B", ["A", "B"]),
        (b"store_id,store_name\r\n1,A\n2,B\r\n3,C\n", ["A", "B", "C"]),
        (b"\r\n\nstore_id,store_name\n1,A\n", ["A"]),
        (b'store_id,"store_name"\n"1","A, B"\n2,"say ""hi"""\n', ["A, B", 'say "hi"']),
        (b'store_id,store_name\r\n1,"A\nB"\r\n2,"C\r\nD"\r\n', ["A\nB", "C\r\nD"]),
        (b'store_id,store_name\n1,"A\rB"\n2,"\rC"\n', ["A\rB", "\rC"]),
        (b'store_id,store_name\n1,A "north" B\n2,"C" D\n', ['A "north" B', "C D"]),
        (b'store_id,store_name\n1, "A\n2,"",\n3,C\n', [' "A', "C"]),
        ("store_id,store_name\n1,Kopitiam 咖啡\n".encode(), ["Kopitiam 咖啡"]),
        (b'store_id,store_name\n1,"A\n2,B\n', ["A\n2,B\n"]),
        (b'"store\nnotes",store_id,store_name\n,1,A\n', ["A"]),
        (b"store_id,store_name\n1,A\n2,NULL\n3,#C\n", ["A", "NULL", "#C"]),
    ],
)
def test_csv_dialects_are_read_as_meant(shop, content, names):
    assert store_names(write_stores(shop, content)) == names


def test_quoted_newlines_that_look_like_rows_do_not_become_rows(shop):
    poem = "\n".join(f"{line},fake" for line in range(100))
    rows = "".join(f'{store},"{poem}"\n' for store in range(20_000))
    folder = write_stores(shop, f"store_id,store_name\n{rows}".encode())
    with load_tables(folder) as tables:
        assert tables.counts["stores"] == RowCount(20_000, 0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "stores.csv: empty"),
        (b"store_id,name\n1,A\n", "line 1: column store_name is missing"),
        (b"store_id,store_name,store_id\n1,A,1\n", "line 1: column store_id is there twice"),
        (b"store_id,store_name\n1,\xff\n", "stores.csv: not UTF-8 text"),
        (b"store_id,store_name\n" + b"1,A\n" * 5000 + b"1,\xff\n", "stores.csv, line 5002: not UTF-8 text"),
        (b"store_id,\xff\n1,A\n", "stores.csv: not UTF-8 text"),
    ],
)
def test_files_that_are_no_table_are_refused_in_one_line(shop, content, complaint):
    folder = write_stores(shop, content)
    with pytest.raises(InputError, match=complaint) as refusal:
        expected_answers(folder, Parameters())
    assert "\n" not in str(refusal.value)


def test_a_missing_folder_or_table_is_refused(shop, tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        expected_answers(tmp_path / "nowhere", Parameters())
    folder = shop.write()
    folder.joinpath("users", "users.csv").rename(folder / "users" / "people.csv")
    with pytest.raises(InputError, match=r"no file users\.csv"):
        expected_answers(folder, Parameters())
    folder.joinpath("users").rename(folder / "people")
    with pytest.raises(InputError, match=r"no file users\.csv"):
        expected_answers(folder, Parameters())


def test_a_table_in_two_folders_is_refused(shop):
    folder = shop.write()
    folder.joinpath("5.users").mkdir()
    folder.joinpath("5.users", "users_202402.csv").write_text("user_id,birthdate\n")
    with pytest.raises(InputError, match="users is there twice"):
        expected_answers(folder, Parameters())


def test_texts_count_up_to_1024_characters_and_long_rows_can_be_read(shop):
    names = ["\U0001f375" * 1024, "\U0001f375" * 1025, "x" * 3_000_000]
    for quote in ("", '"'):
        rows = "".join(f"{store},{quote}{name}{quote}\n" for store, name in enumerate(names))
        folder = write_stores(shop, f"store_id,store_name\n{rows}".encode())
        with load_tables(folder) as tables:
            assert tables.counts["stores"] == RowCount(1, 2)
