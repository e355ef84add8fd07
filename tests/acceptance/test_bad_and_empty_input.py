"""A folder with nearly every oddity and flaw of an export, and a folder with empty answers."""

import csv
import json

import pyarrow.parquet as pq
import pytest

from kopitiam.questions.catalog import builtin

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NASTY = {
    "1.stores/stores.csv": (  # with Windows line ends and a byte order mark, and a newline inside a name
        BYTE_ORDER_MARK + b"store_name,store_id,city\r\n"
        b'"Kopi, North",1,Ipoh\r\n'
        b'"South\nWing",2,Ipoh\r\n'
        b"Nowhere,x,Ipoh\r\n"
        b'"Kopi ""Twice""",3,Ipoh\r\n'
        b"Kopi Once,3,Ipoh\r\n"
        b"Idle,4,Ipoh\r\n"
    ),
    "2.menu_items/menu_items.csv": b'item_id,item_name,price\n1,"Kopi ""O"", large",6\n2,Teh,6\n',
    "3. users/users_202301.csv": (
        b"user_id,gender,birthdate,registered_at\n"
        b"1,F,1990-01-01,2023-01-01 00:00:00\n"
        b"2.0,M,1980-02-29,2023-01-01 00:00:00\n"
        b"3,M,,2023-01-01 00:00:00\n"
        b"4,F,1990-02-30,2023-01-01 00:00:00\n"
    ),
    "3. users/users_202302.csv": b"birthdate,user_id\n1990-13-01,5\n2001-01-01,6",
    "4.transactions/transactions_202401.csv": (
        b"transaction_id,store_id,payment_method_id,voucher_id,user_id,original_amount,discount_applied,"
        b"final_amount,created_at\n"
        b"t01,1,1,,1.0,75,0,75,2024-01-01 06:00:00\n"
        b"t02,1,1,,1,75,0.0001,74.9999,2024-01-01 23:00:00\n"
        b"t03,1,1,,2,80.5,0,80.5,2024-01-01 23:00:01\n"
        b"t04,1,1,,,76,0,76,2024-01-01 05:59:59\n"
        b"t05,2,1,,2,75.0001,0,75.0001,2024-02-29 23:00:00\n"
        b"t05,2,1,,2,75.0001,0,75.0001,2024-02-29 23:00:00\n"
        b"bad,1,1,,1,80,0,75.00001,2024-01-01 12:00:00\n"
        b"bad,1,1,,1,80,0,80,2024-02-30 12:00:00\n"
        b"bad,1,1\n"
        b"bad,,1,,1,80,0,80,2024-01-01 12:00:00\n"
        b"t06,9,1,,7,100,0,100,2024-06-30 12:00:00\n"
        b"t07,3,1,,,-5.25,0,-5.25,2024-07-01 12:00:00\n"
        b"t08,1,1,,3,80,0,80,2023-12-31 22:59:59\n"
        b"t09,1,1,,3,80,0,80,2026-01-01 06:00:00\n"
    ),
    "4.transactions/transactions_202402.csv": b"transaction_id,store_id,user_id,final_amount,created_at\n",
    "4.transactions/transactions_202403.csv": (
        b"created_at,user_id,final_amount,note,store_id,transaction_id\n"
        b'2024-03-01 12:00:00,3,10,"a note, with a comma\nand a newline",1,t10\n'
        b"2024-03-01 12:00:00,2,10,,1,t11\n"
        b"2024-03-01 12:00:00,6,10,,1,t12\n"
        b"noon,6,80,,1,bad\n"
        b"2025-12-31 23:00:00,,200,,2,t14\n"
        b"2024-03-01 12:00:00,-1,80,,1,bad\n"
        b"2024-03-01 12:00:00,1,80,,1,bad,more\n"
    ),
    "5.transaction_items/transaction_items_202401.csv": (
        b"transaction_id,item_id,quantity,unit_price,subtotal,created_at\n"
        b"t01,1,2,6,12.0,2024-01-01 00:00:00\n"
        b"t01,1,2,6,12.0,2024-01-01 00:00:00\n"
        b"t01,2,4,6,24,2024-01-31 23:59:59\n"
        b"t02,8,1,500,500,2024-02-29 12:00:00\n"
        b"t02,2,3,1,3,2024-02-01 00:00:00\n"
        b"t03,1,many,6,6,2024-03-01 12:00:00\n"
        b"t03,1,1.5,6,6,2024-03-01 12:00:00\n"
        b"t03,2,1,6,six,2024-03-01 12:00:00\n"
        b"t04,1,1,6,6,2023-12-31 23:59:59\n"
    ),
    "vouchers/vouchers.csv": b"whatever",
}
MISSING_MONTHS = "transaction_items: no file for 2024-02 to 2024-03\n"  # which other tables have
ANSWERED = {
    "1": [("t01", "75.0"), ("t05", "75.0001"), ("t05", "75.0001"), ("t06", "100.0"), ("t14", "200.0")],
    "2_1": [("2024-01", 'Kopi "O", large', "4"), ("2024-02", "Teh", "3")],
    "2_2": [("2024-01", 'Kopi "O", large', "24.0"), ("2024-02", "8", "500.0")],
    "3": [
        ("2024-H1", "9", "100.0"),
        ("2024-H1", "Kopi, North", "179.9999"),
        ("2024-H1", "South\nWing", "150.0002"),
        ("2024-H2", 'Kopi "Twice"', "-5.25"),
        ("2025-H2", "South\nWing", "200.0"),
    ],
    "4": [
        ("9", ""),
        ("Kopi, North", ""),
        ("Kopi, North", "1980-02-29"),
        ("Kopi, North", "1990-01-01"),
        ("South\nWing", "1980-02-29"),
    ],
}
REJECTED = [  # table, file, line, what the reason names
    ("stores", "1.stores/stores.csv", "5", "store_id 'x'"),
    ("users", "3. users/users_202301.csv", "5", "birthdate '1990-02-30'"),
    ("users", "3. users/users_202302.csv", "2", "birthdate '1990-13-01'"),
    ("transactions", "4.transactions/transactions_202401.csv", "8", "final_amount '75.00001'"),
    ("transactions", "4.transactions/transactions_202401.csv", "9", "created_at '2024-02-30 12:00:00'"),
    ("transactions", "4.transactions/transactions_202401.csv", "10", "fields"),
    ("transactions", "4.transactions/transactions_202401.csv", "11", "store_id is empty"),
    ("transactions", "4.transactions/transactions_202403.csv", "6", "created_at 'noon'"),
    ("transactions", "4.transactions/transactions_202403.csv", "8", "user_id '-1'"),
    ("transactions", "4.transactions/transactions_202403.csv", "9", "fields"),
    ("transaction_items", "5.transaction_items/transaction_items_202401.csv", "7", "quantity 'many'"),
    ("transaction_items", "5.transaction_items/transaction_items_202401.csv", "8", "quantity '1.5'"),
    ("transaction_items", "5.transaction_items/transaction_items_202401.csv", "9", "subtotal 'six'"),
]
READ = {"stores": 6, "menu_items": 2, "users": 6, "transactions": 21, "transaction_items": 9}
OTHER_YEARS = {
    "stores/stores.csv": b"store_id,store_name\n1,North\n",
    "menu_items/menu_items.csv": b"item_id,item_name\n1,Teh\n",
    "users/users.csv": b"user_id,birthdate\n1,1990-01-01\n",
    "transactions/transactions.csv": (
        b"transaction_id,store_id,user_id,final_amount,created_at\n"
        b"a,1,1,80,2023-12-31 12:00:00\n"
        b"b,1,1,80,2026-01-01 12:00:00\n"
    ),
    "transaction_items/transaction_items.csv": (
        b"item_id,quantity,subtotal,created_at\n1,1,6,2023-12-31 12:00:00\n"
    ),
}


def write_folder(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def nasty_folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("nasty"), NASTY)


@pytest.fixture(scope="module")
def nasty_analyzed(kopi, nasty_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("nasty") / "answers"
    return kopi("analyze", nasty_folder, "--out", out), out


@pytest.mark.long
def test_a_folder_with_many_flaws_has_the_right_answers(
    nasty_folder, nasty_analyzed, answers_in, is_verified
):
    run, out = nasty_analyzed
    assert (run.code, run.stderr) == (0, MISSING_MONTHS)
    assert answers_in(out) == ANSWERED
    assert is_verified(nasty_folder, out)


@pytest.mark.long
def test_every_bad_row_is_rejected_with_its_line_and_reason(nasty_analyzed):
    _, out = nasty_analyzed
    with (out / "rejected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for table in READ:  # the tables come in any order, the rows of each as they were read
        rejected_rows = [row for row in rows if row["table"] == table]
        expected = [rejected for rejected in REJECTED if rejected[0] == table]
        assert [(table, row["file"], row["line"]) for row in rejected_rows] == [
            place[:3] for place in expected
        ]
        for row, (*_, reason) in zip(rejected_rows, expected, strict=True):
            assert reason in row["reason"]
    assert len(rows) == len(REJECTED)
    assert "Nowhere,x,Ipoh" in [row["row"] for row in rows]


@pytest.mark.long
def test_rows_read_are_rows_used_and_rows_rejected(nasty_analyzed):
    run, out = nasty_analyzed
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    rejected = {name: sum(place[0] == name for place in REJECTED) for name in READ}
    assert summary["tables"] == {
        name: {"read": READ[name], "used": READ[name] - rejected[name], "rejected": rejected[name]}
        for name in READ
    }
    assert summary["rows"] == {"read": 44, "used": 31, "rejected": 13}
    assert summary["unmatched"] == {"stores": 1, "menu_items": 1, "users": 1}
    assert "44 rows read = 31 used + 13 rejected" in run.stdout
    assert "1.stores/stores.csv, line 5: store_id 'x'" in run.stdout


@pytest.mark.long
def test_strict_makes_the_first_bad_row_fatal(kopi, nasty_folder, tmp_path):
    run = kopi("analyze", nasty_folder, "--out", tmp_path / "answers", "--strict")
    assert (run.code, run.stdout) == (2, "")
    assert run.stderr.startswith(MISSING_MONTHS)
    (line,) = run.stderr.removeprefix(MISSING_MONTHS).splitlines()
    assert "1.stores/stores.csv, line 5: store_id 'x'" in line
    assert not any((tmp_path / "answers").glob("results_query_*"))
    assert not (tmp_path / "answers" / "summary.json").exists()


@pytest.mark.long
def test_no_rows_in_the_years_are_five_empty_answers(kopi, is_verified, tmp_path):
    data = write_folder(tmp_path / "data", OTHER_YEARS)
    run = kopi("analyze", data, "--out", tmp_path / "answers")
    assert (run.code, run.stderr) == (0, "")
    assert run.stdout.count("no rows") == len(builtin())
    for answer in builtin().values():
        path = tmp_path / "answers" / answer.file_name("csv")
        assert path.read_text(encoding="utf-8") == ",".join(answer.shown) + "\n"
        assert json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["rows"] == []
        assert pq.read_metadata(path.with_suffix(".parquet")).num_rows == 0
    assert is_verified(data, tmp_path / "answers")
