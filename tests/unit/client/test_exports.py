"""Exports as they come: compressed, in archives, in one folder, in capitals, with other separators."""

import csv
import gzip
import io
import logging
import stat
import struct
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from catalog_tables import TABLES
from kopitiam.client import export_files
from kopitiam.client.chunks import read_chunks
from kopitiam.client.client import Client
from kopitiam.client.folder import check_structure, open_folder
from kopitiam.contracts.errors import InputError, KopitiamError
from kopitiam.verification.rows import RowCount, load_tables

ROWS = 400


@pytest.fixture
def exports(sound_folder):
    """Three months of transactions and two of items, with quotes, line breaks and bad rows."""
    header = SOUND_HEADERS["transactions"]
    for month in ("202401", "202402", "202404"):
        rows = [
            f'"t{month},;\t\n{n}",{n % 2 + 1},{n}.0,{n}.5,{month[:4]}-{month[4:]}-01 10:00:00'
            for n in range(ROWS)
        ]
        text = "\n".join([header, *rows, "bad,1,,1,yesterday", "short,1"]) + "\n"
        sound_folder.joinpath("transactions", f"transactions_{month}.csv").write_text(text)
    items = sound_folder / "transaction_items"
    items.joinpath("transaction_items_202402.csv").write_text(
        SOUND_HEADERS["transaction_items"] + "\n1,2,1.5,2024-02-01 10:00:00\n"
    )
    return sound_folder


SOUND_HEADERS = {
    "transactions": "transaction_id,store_id,user_id,final_amount,created_at",
    "transaction_items": "item_id,quantity,subtotal,created_at",
}


def csv_files(folder):
    return sorted(folder.rglob("*.csv"))


def as_they_are(folder):
    return folder


def gzipped(folder):
    for file in csv_files(folder):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return folder


def gzipped_in_pieces(folder):
    for file in csv_files(folder):
        data = file.read_bytes()
        pieces = [gzip.compress(data[start : start + 1000]) for start in range(0, len(data), 1000)]
        file.with_name(f"{file.name}.GZ").write_bytes(b"".join(pieces))
        file.unlink()
    return folder


def zstandard(folder):
    for file in csv_files(folder):
        file.with_name(f"{file.name}.zst").write_bytes(pa.compress(file.read_bytes(), "zstd", asbytes=True))
        file.unlink()
    return folder


def flat(folder):
    for file in csv_files(folder):
        file.rename(folder / file.name)
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    return folder


def in_capitals(folder):
    for file in csv_files(folder):
        header, _, rows = file.read_text().partition("\n")
        file.with_name(file.name.upper()).write_text(f"{header.upper()}\n{rows}")
        file.unlink()
    for place in list(folder.iterdir()):
        place.rename(folder / f"1. {place.name.upper()}")
    return folder


def separated_by(separator):
    def rewrite(folder):
        for file in csv_files(folder):
            with file.open(newline="") as opened:
                rows = list(csv.reader(opened))
            text = io.StringIO()
            csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
            file.write_text(text.getvalue())
        return folder

    return rewrite


def archived(prefix="", method=zipfile.ZIP_DEFLATED, slash="/"):
    def pack(folder):
        path = folder.parent / "exports of January.ZIP"
        with zipfile.ZipFile(path, "w", method) as archive:
            for file in sorted(file for file in folder.rglob("*") if file.is_file()):
                name = prefix + file.relative_to(folder).as_posix()
                archive.write(file, name.replace("/", slash))
        return path

    return pack


def archive_of_a_mac(folder):
    path = archived("exports/")(folder)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/exports/users/users_202401.csv", b"\0\0")
    return path


def an_archive_for_each_month(folder):
    away = folder.parent / "monthly"
    away.mkdir()
    for month in ("202401", "202402", "202404", ""):
        with zipfile.ZipFile(away / f"sales{month}.zip", "w") as archive:
            for file in csv_files(folder):
                if file.stem.endswith(month) and (month or not file.stem[-1].isdigit()):
                    archive.write(file, f"{month}/{file.relative_to(folder)}")
    return away


FORMS = {
    "as they are": as_they_are,
    "gzip": gzipped,
    "gzip in pieces": gzipped_in_pieces,
    "Zstandard": zstandard,
    "flat": flat,
    "capitals": in_capitals,
    "semicolons": separated_by(";"),
    "tabs": separated_by("\t"),
    "zip": archived(),
    "zip with a folder, stored": archived("my/exports/", zipfile.ZIP_STORED),
    "zip with backslashes": archived("exports\\", slash="\\"),
    "zip with LZMA": archived(method=zipfile.ZIP_LZMA),
    "zip of a Mac": archive_of_a_mac,
    "zip of a flat folder": lambda folder: archived()(flat(folder)),
    "zip of gzip": lambda folder: archived()(gzipped(folder)),
    "zips of months": an_archive_for_each_month,
    "flat, in capitals, gzip, semicolons": lambda folder: flat(gzipped(separated_by(";")(folder))),
}


def rows_of(path):
    """Check a folder and return its notes, and by table its rows, its rejected rows and their reasons."""
    folder = open_folder(path, TABLES)
    notes = check_structure(folder)
    read = {}
    with ThreadPoolExecutor(2) as workers:
        for table in TABLES.values():
            rejected = []
            chunks = list(read_chunks(folder, table, workers, rejected.append))
            rows = pa.concat_tables([chunk.rows for chunk in chunks]) if chunks else None
            reasons = [(row.line, row.reason) for row in rejected]
            read[table.name] = rows and rows.to_pylist(), reasons
    return notes, read


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_export_in_any_form_has_the_same_rows_for_client_and_check(exports, form):
    notes, expected = rows_of(exports)
    assert [(len(rows), len(bad)) for rows, bad in expected.values()] == [
        (2, 0), (1, 0), (1, 0), (3 * ROWS, 6), (2, 0)
    ]  # fmt: skip
    changed = FORMS[form](exports)
    notes, found = rows_of(changed)
    assert found == expected
    assert [note for note in notes if "no file for" in note] == [
        "transactions: no file for 2024-03",
        "transaction_items: no file for 2024-03 to 2024-04",
    ]
    with load_tables(changed) as tables:
        assert tables.counts == {t: RowCount(len(rows), len(bad)) for t, (rows, bad) in expected.items()}
        ids = tables.database.table("transactions").project("transaction_id").fetchall()
    assert sorted(ids) == sorted((row["transaction_id"],) for row in expected["transactions"][0])


@pytest.mark.parametrize(
    ("form", "note"),
    [
        (flat, "files without a folder of their table are taken by their names: stores.csv, and 7 more"),
        (in_capitals, "1. STORES/STORES.CSV is read as stores.csv, and 7 more"),
        (in_capitals, "columns are known by their names in any case of letters: 1. STORES/STORES.CSV, and 7"),
        (separated_by(";"), "fields are separated by semicolons: stores/stores.csv, and 7 more"),
        (separated_by("\t"), "fields are separated by tabs: stores/stores.csv, and 7 more"),
        (an_archive_for_each_month, "there are no tables beside archives: reading sales.zip, sales2024"),
    ],
)  # fmt: skip
def test_what_is_inferred_is_said_before_anything_is_sent(exports, form, note):
    assert any(said.startswith(note) for said in rows_of(form(exports))[0])


def test_nothing_is_said_about_an_export_as_documented(sound_folder):
    assert rows_of(sound_folder)[0] == ()
    assert rows_of(archived()(gzipped(sound_folder)))[0] == ()


def test_the_python_client_logs_what_is_inferred(exports, caplog):
    with (
        caplog.at_level(logging.WARNING),
        Client("http://127.0.0.1:1", patience_seconds=0) as client,
        pytest.raises(KopitiamError),
    ):
        client.submit(flat(exports))
    assert "transactions: no file for 2024-03" in caplog.messages


def test_a_folder_with_tables_ignores_archives_in_it(exports):
    path = archived()(exports)
    path.rename(exports / "backup.zip")
    assert rows_of(exports)[1]["stores"][0] == [
        {"store_id": 1, "store_name": "North"},
        {"store_id": 2, "store_name": "South"},
    ]


def test_a_header_in_both_cases_is_read_by_the_exact_name(sound_folder):
    stores = sound_folder / "stores" / "stores.csv"
    stores.write_text("STORE_ID,store_id,store_name\n9,1,North\n")
    assert rows_of(sound_folder)[1]["stores"][0] == [{"store_id": 1, "store_name": "North"}]
    stores.write_text("STORE_ID,Store_Id,store_name\n9,1,North\n")
    with pytest.raises(InputError, match="column store_id is there twice"):
        rows_of(sound_folder)


def test_a_decimal_comma_is_a_bad_cell_not_a_guess(sound_folder):
    file = sound_folder / "transactions" / "transactions_202401.csv"
    file.write_text(SOUND_HEADERS["transactions"].replace(",", ";") + "\na;1;7;80,5;2024-01-01 10:00:00\n")
    _, reasons = rows_of(sound_folder)[1]["transactions"]
    assert reasons == [(2, "final_amount '80,5' is not an amount of at most 4 decimals below 10^14")]


# -- damage and malice


def refusal(path):
    with pytest.raises(InputError) as refused:
        rows_of(path)
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError), load_tables(path):
        pass  # the check refuses it too, in its own words
    return str(refused.value)


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [(".gz", "cut off"), (".gz", "flipped"), (".gz", "text"), (".zst", "cut off"), (".zst", "text")],
)
def test_a_damaged_compressed_file_is_refused_by_name(exports, suffix, damage):
    file = (gzipped if suffix == ".gz" else zstandard)(exports) / "users" / f"users_202401.csv{suffix}"
    data = file.read_bytes()
    contents = {
        "cut off": data[:-2],
        "flipped": data[:15] + bytes([data[15] ^ 255]) + data[16:],
        "text": b"user_id,birthdate\n",
    }
    file.write_bytes(contents[damage])
    complaint = refusal(exports)
    assert complaint.startswith(f"{file}: is damaged or cut off: ")
    assert complaint.endswith("; export it again")


def test_an_empty_compressed_file_is_refused(exports):
    gzipped(exports).joinpath("users", "users_202401.csv.gz").write_bytes(gzip.compress(b""))
    assert refusal(exports) == "users/users_202401.csv.gz: the file is empty, without even a header line"


def test_a_file_that_is_there_plain_and_compressed_is_refused(exports):
    users = exports / "users" / "users_202401.csv"
    users.with_name("users_202401.csv.gz").write_bytes(gzip.compress(users.read_bytes()))
    assert refusal(exports) == (
        f"{exports}: users_202401.csv is there twice: users/users_202401.csv and users/users_202401.csv.gz"
    )


@pytest.mark.parametrize("form", [gzipped, zstandard, archived()])
def test_a_file_that_expands_without_end_is_refused_in_little_memory(exports, form, monkeypatch):
    monkeypatch.setattr(export_files, "_LEAST_SUSPECT_BYTES", 20 << 20)
    monkeypatch.setattr("kopitiam.verification.exports._MOST_BYTES_UNSUSPECTED", 20 << 20)
    users = exports / "users" / "users_202401.csv"
    users.write_bytes(b"user_id,birthdate\n" + b"1,\n" * (10 << 20))
    changed = form(exports)
    assert "expands to more than 250 times its size" in refusal(changed)


def hostile_archive(folder, name, content=b"user_id,birthdate\n1,\n", mode=0o644):
    path = archived()(folder)
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of a name that is there twice
        archive.writestr(info, content)
    return path


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("../users/users_202402.csv", "leads out of the archive"),
        ("users/../../users_202402.csv", "leads out of the archive"),
        ("..\\users_202402.csv", "leads out of the archive"),
        ("/etc/users_202402.csv", "leads out of the archive"),
        ("C:\\users\\users_202402.csv", "leads out of the archive"),
        ("users/users_202401.csv", "is there twice"),
    ],
)
def test_an_archive_with_a_hostile_name_is_refused(exports, name, complaint):
    path = hostile_archive(exports, name)
    with pytest.raises(InputError, match=complaint):
        open_folder(path, TABLES)


def test_a_link_in_an_archive_is_refused(exports):
    path = hostile_archive(exports, "users/users_202402.csv", b"/etc/passwd", stat.S_IFLNK | 0o777)
    with pytest.raises(InputError, match=r"'users/users_202402\.csv' is a link"):
        open_folder(path, TABLES)


@pytest.mark.parametrize("damage", ["member", "directory", "text", "encrypted", "method"])
def test_a_damaged_archive_is_refused_by_name(exports, damage):
    path = archived(method=zipfile.ZIP_STORED)(exports)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("users/users_202401.csv")
    entry = data.index(b"PK\x01\x02", data.rindex(b"users/users_202401.csv") - 46)
    match damage:
        case "member":
            data[info.header_offset + 30 + len(info.filename) + 5] ^= 255
        case "directory":
            del data[-30:]
        case "text":
            data[:] = b"user_id,birthdate\n"
        case "encrypted":
            data[info.header_offset + 6] |= 1
            data[entry + 8] |= 1
        case "method":
            data[info.header_offset + 8 : info.header_offset + 10] = struct.pack("<H", 99)
            data[entry + 10 : entry + 12] = struct.pack("<H", 99)
    path.write_bytes(data)
    assert str(path) in refusal(path)
