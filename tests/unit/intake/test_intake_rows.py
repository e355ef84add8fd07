"""CSV text to rows in normal form: dialects, bad rows and their lines."""

import csv
from datetime import UTC, datetime

import pytest

from catalog_tables import TABLES
from kopitiam.contracts.errors import InputError
from kopitiam.intake.blocks import BLOCK_BYTES, read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm
from packed_ids import with_texts

MENU_ITEMS = TABLES["menu_items"]
STORES = TABLES["stores"]
TRANSACTION_ITEMS = TABLES["transaction_items"]
TRANSACTIONS = TABLES["transactions"]
USERS = TABLES["users"]

HEADER = "transaction_id,store_id,user_id,final_amount,created_at"
GOOD = {
    "transaction_id": "t",
    "store_id": "1",
    "user_id": "",
    "final_amount": "75",
    "created_at": "2024-01-31 22:59:59",
}


@pytest.fixture
def intake(tmp_path):
    """Reads the bytes of a file; gives its good rows and its rejected ones."""

    def intake(table, content, block_bytes=BLOCK_BYTES):
        file = tmp_path / "file.csv"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        form = NormalForm(table, read_header(file), "file.csv")
        made = [form.normalize(block) for block in read_blocks(file, block_bytes)]
        return (
            [row for part in made for row in with_texts(table, part.rows).to_pylist()],
            [rejected for part in made for rejected in part.rejected],
        )

    return intake


def sale(**cells):
    return ",".join((GOOD | cells).values())


def places(rejected):
    return [(row.line, row.row) for row in rejected]


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("store_id,store_name\n1,A\n2,B\n", ["A", "B"]),
        ("\ufeffstore_id,store_name\n1,A\n", ["A"]),
        ('\ufeff"store_id",store_name\n1,A\n', ["A"]),
        ("store_id,store_name\r\n1,A\r\n\r\n2,B\r\n", ["A", "B"]),
        ("store_id,store_name\r\n1,A\n2,B\r\n3,C", ["A", "B", "C"]),
        ("store_id,store_name\r1,A\r2,B", ["A", "B"]),
        ("store_id,store_name\n1,A\n2,B", ["A", "B"]),
        ("\n".join(["store_id,store_name", "", "1,A", "", "", "2,B", "", ""]), ["A", "B"]),
        ('"store_id","store_name"\n"1","A, B"\n2,"say ""hi"""\n', ["A, B", 'say "hi"']),
        ('store_id,store_name\r\n1,"A\nB"\r\n2,"C\r\nD"\r\n', ["A\nB", "C\r\nD"]),
        ('store_id,store_name\n1,A "north" B\n2,"C" D\n3, "E"\n', ['A "north" B', "C D", ' "E"']),
        ('"street\nand ""number""",store_id,store_name\n,1,A\n', ["A"]),
        ('store_id,5" pipes,store_name\n1,,A\n', ["A"]),
        ("store_name,city,store_id,city\nA,x,1,y\n", ["A"]),
        ("store_id,store_name\n1,Kopitiam 咖啡\n", ["Kopitiam 咖啡"]),
        ("store_id,store_name\n1,NULL\n2,nan\n3,#C\n4, \n", ["NULL", "nan", "#C", " "]),
        ("store_name,store_id\n\ufeffA,1\n\ufeffB,2\n", ["\ufeffA", "\ufeffB"]),
        ("store_id,store_name\n", []),
        ("store_id,store_name", []),
        ("store_id,store_name\r\n\r\n\n", []),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 16, BLOCK_BYTES])
def test_csv_dialects_are_read_as_meant(intake, content, names, block_bytes):
    rows, rejected = intake(STORES, content, block_bytes)
    assert [row["store_name"] for row in rows] == names
    assert rejected == []


def test_a_row_takes_the_types_of_its_table(intake):
    rows, _ = intake(TRANSACTIONS, f"{HEADER}\n{sale(user_id='17272.0', final_amount='75.075')}\n")
    assert rows == [
        {
            "transaction_id": "t",
            "store_id": 1,
            "user_id": 17272,
            "final_amount": 750_750,
            "created_at": datetime(2024, 1, 31, 22, 59, 59, tzinfo=UTC),
        }
    ]


def test_columns_are_found_by_name_in_any_order_among_others(intake):
    header = "created_at,voucher_id,final_amount,,transaction_id,user_id,payment_method_id,store_id"
    rows, rejected = intake(TRANSACTIONS, f"{header}\n2024-01-31 22:59:59,?,75,,t,,x,1\n")
    assert rows == intake(TRANSACTIONS, f"{HEADER}\n{sale()}\n")[0]
    assert rejected == []


@pytest.mark.parametrize(
    ("amount", "units"),
    [("75", 750_000), ("75.000", 750_000), ("74.9999", 749_999), ("75.0001", 750_001), ("-.5", -5_000)],
)
def test_amounts_are_exact(intake, amount, units):
    rows, _ = intake(TRANSACTIONS, f"{HEADER}\n{sale(final_amount=amount)}\n")
    assert [row["final_amount"] for row in rows] == [units]


def test_an_empty_cell_is_a_null_only_where_the_column_is_optional(intake):
    rows, rejected = intake(USERS, "user_id,birthdate\n1,\n,1990-01-01\n2,\n")
    assert rows == [{"user_id": 1, "birthdate": None}, {"user_id": 2, "birthdate": None}]
    assert [(row.line, row.reason) for row in rejected] == [(3, "user_id is empty")]


AMOUNT = "is not an amount of at most 4 decimals below 10^14"
TIME = "is not a time like 2024-01-31 22:59:59"
BAD_CELLS = [
    ("transaction_id", "", "transaction_id is empty"),
    (
        "transaction_id",
        "é" * 1025,
        f"transaction_id '{'é' * 37}...' is not a text of at most 1,024 characters",
    ),
    ("store_id", "", "store_id is empty"),
    ("store_id", "-1", "store_id '-1' is not a whole number"),
    ("store_id", "1.5", "store_id '1.5' is not a whole number"),
    ("store_id", "1" * 18, f"store_id '{'1' * 18}' is not a whole number"),
    ("user_id", "1e2", "user_id '1e2' is not a whole number"),
    ("user_id", " ", "user_id ' ' is not a whole number"),
    ("final_amount", "", "final_amount is empty"),
    ("final_amount", "75.00001", f"final_amount '75.00001' {AMOUNT}"),
    ("final_amount", "5e-40", f"final_amount '5e-40' {AMOUNT}"),
    ("final_amount", "1e2", f"final_amount '1e2' {AMOUNT}"),
    ("final_amount", "100000000000000", f"final_amount '100000000000000' {AMOUNT}"),
    ("final_amount", "0." + "0" * 40, f"final_amount '0.{'0' * 35}...' {AMOUNT}"),
    ("final_amount", "nan", f"final_amount 'nan' {AMOUNT}"),
    ("final_amount", "RM 5", f"final_amount 'RM 5' {AMOUNT}"),
    ("created_at", "", "created_at is empty"),
    ("created_at", "2024-02-30 10:00:00", f"created_at '2024-02-30 10:00:00' {TIME}"),
    ("created_at", "2023-02-29 10:00:00", f"created_at '2023-02-29 10:00:00' {TIME}"),
    ("created_at", "2024-01-31", f"created_at '2024-01-31' {TIME}"),
    ("created_at", "2024-01-31 24:00:00", f"created_at '2024-01-31 24:00:00' {TIME}"),
    ("created_at", "0000-01-31 10:00:00", f"created_at '0000-01-31 10:00:00' {TIME}"),
    ("created_at", "2024-01-31 10:00+01", f"created_at '2024-01-31 10:00+01' {TIME}"),
]


@pytest.mark.parametrize(("column", "cell", "reason"), BAD_CELLS)
def test_a_bad_cell_rejects_its_row_with_file_line_and_reason(intake, column, cell, reason):
    bad = sale(**{column: cell})
    rows, rejected = intake(TRANSACTIONS, "\n".join([HEADER, sale(), bad, sale(), bad]))
    assert len(rows) == 2
    assert [(row.file, row.line, row.reason, row.row) for row in rejected] == [
        ("file.csv", 3, reason, bad),
        ("file.csv", 5, reason, bad),
    ]


def test_a_text_may_have_1024_characters_whatever_their_bytes(intake):
    name = "\U0001f375" * 1024
    rows, rejected = intake(STORES, f"store_id,store_name\n1,{name}\n2,{name}x\n")
    assert (rows, [row.line for row in rejected]) == ([{"store_id": 1, "store_name": name}], [3])


def test_a_rejected_row_is_kept_shortened(intake):
    _, rejected = intake(STORES, f"store_id,store_name\n1,{'x' * 1_000_000}\n")
    assert [(row.line, row.row) for row in rejected] == [(2, f"1,{'x' * 4094}...")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1," + "x" * (5 << 20), "a row of more than 4 MiB"),
        ('1,"' + "x\n" * (3 << 20), "a quote is opened here"),
    ],
)
def test_a_row_beyond_its_bound_is_refused_without_being_read(intake, row, reason):
    with pytest.raises(InputError, match=f"line 3: {reason}"):
        intake(STORES, f"store_id,store_name\n1,A\n{row}\n2,B\n")
    with pytest.raises(InputError, match="line 1: a header of more than 4 MiB"):
        intake(STORES, "x" * (9 << 20))


def test_february_29_exists_in_leap_years_only(intake):
    dates = ["2024-02-29", "2024-02-30", "2023-02-29", "2000-02-29", "1900-02-29"]
    content = "user_id,birthdate\n" + "".join(f"1,{date}\n" for date in dates)
    rows, rejected = intake(USERS, content)
    assert [str(row["birthdate"]) for row in rows] == ["2024-02-29", "2000-02-29"]
    assert [row.reason for row in rejected] == [
        f"birthdate '{date}' is not a date like 1988-09-25"
        for date in ("2024-02-30", "2023-02-29", "1900-02-29")
    ]


def test_quantities_may_have_a_sign_and_ids_may_not(intake):
    header = "item_id,quantity,subtotal,created_at\n"
    content = (
        header + "1,-2,5,2024-01-01 00:00:00\n1,+3.0,5,2024-01-01 00:00:00\n-1,2,5,2024-01-01 00:00:00\n"
    )
    rows, rejected = intake(TRANSACTION_ITEMS, content)
    assert [row["quantity"] for row in rows] == [-2, 3]
    assert [row.reason for row in rejected] == ["item_id '-1' is not a whole number"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_rows_with_too_few_or_too_many_fields_are_rejected(intake, line_end):
    content = line_end.join(["item_id,item_name", "1", "1,A", "", "2,B,", '3,C,"D', 'E"', " ", "4,D"])
    rows, rejected = intake(MENU_ITEMS, content)
    assert [row["item_name"] for row in rows] == ["A", "D"]
    assert {row.reason for row in rejected} == {"not 2 fields"}
    assert places(rejected) == [(2, "1"), (5, "2,B,"), (6, f'3,C,"D{line_end}E"'), (8, " ")]


@pytest.mark.parametrize("block_bytes", [1, 20, BLOCK_BYTES])
def test_lines_are_right_after_quoted_newlines_and_blank_lines(intake, block_bytes):
    content = '"store\n_id",store_id,store_name\n,1,"A\n\nB"\n\n\n,x,C\n,2,D\r\n\r\n,"y","E\r\nF"\n,3,G\n,,H'
    rows, rejected = intake(STORES, content, block_bytes)
    assert [row["store_name"] for row in rows] == ["A\n\nB", "D", "G"]
    assert places(rejected) == [(8, ",x,C"), (11, ',"y","E\r\nF"'), (14, ",,H")]


def test_of_several_bad_cells_the_first_column_of_the_table_is_named(intake):
    _, rejected = intake(TRANSACTIONS, f"{HEADER}\n{sale(store_id='x', final_amount='y')}\n")
    assert [row.reason for row in rejected] == ["store_id 'x' is not a whole number"]


def test_a_missing_column_is_refused_with_what_was_found(intake):
    with pytest.raises(InputError) as refusal:
        intake(STORES, "id,store_name\n1,A\n")
    assert str(refusal.value) == "file.csv, line 1: no column store_id (found: id, store_name)"


def test_a_duplicate_column_is_refused(intake):
    with pytest.raises(InputError, match="line 1: column store_id is there twice"):
        intake(STORES, "store_id,store_name,store_id\n1,A,1\n")


@pytest.mark.parametrize("content", ['store_id,"store_name\n1,A\n', 'store_id,"store_name'])
def test_a_quote_left_open_in_the_header_is_refused(intake, content):
    with pytest.raises(InputError, match="line 1: a quote is opened in the header and not closed"):
        intake(STORES, content)


@pytest.mark.parametrize(
    ("longest_field", "complaint"),
    [(131_072, "not a CSV header: "), (1_000_000, "no column store_id, store_name")],
)
def test_a_huge_header_is_refused_in_few_words(intake, longest_field, complaint):
    limit_before = csv.field_size_limit(longest_field)
    try:
        with pytest.raises(InputError, match=f"line 1: {complaint}") as refusal:
            intake(STORES, "x" * 200_000 + "\n1,A\n")
    finally:
        csv.field_size_limit(limit_before)
    assert len(str(refusal.value)) < 500


def test_a_header_with_newlines_is_refused_in_one_line(intake):
    with pytest.raises(InputError) as refusal:
        intake(STORES, '"the\nid","the\r\nname"\n1,A\n')
    assert str(refusal.value) == "file.csv, line 1: no column store_id, store_name (found: the id, the name)"


def test_bytes_that_are_not_utf8_are_refused_with_their_line(intake):
    with pytest.raises(InputError, match="line 3: not UTF-8 text"):
        intake(STORES, b"store_id,store_name\n1,A\n2,Caf\xe9\n")
