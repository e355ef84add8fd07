"""Numbered chunks are the same for any blocks and workers; rejected rows come in parts."""

import csv
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog_tables import TABLES
from compiled_parser import compiled_parser
from kopitiam.client import chunks as chunks_module
from kopitiam.client.chunks import cut, in_order, read_chunks, rejected_parts
from kopitiam.client.folder import open_folder
from kopitiam.intake.blocks import read_blocks
from kopitiam.landing.chunks import encode
from kopitiam.synthetic import generate

USERS = TABLES["users"]


@pytest.fixture
def users(sound_folder):
    """Three files of users, 1 to 40, some of them with quotes, and four bad rows between them."""
    lines = {number: f'{number},"1990-01-{number % 28 + 1:02}"' for number in range(1, 41)}
    parts = {"202401": [], "202402": ["bad,", ",1990-01-01"], "202403": ["1,2,3", "7,1990-02-30"]}
    for number, line in lines.items():
        parts[f"20240{1 + (number - 1) // 15}"].append(line)
    for month, rows in parts.items():
        file = sound_folder / "users" / f"users_{month}.csv"
        file.write_text("\n".join(["user_id,birthdate", *rows]), encoding="utf-8")
    return open_folder(sound_folder, TABLES)


def chunks_of(folder, workers=2, chunk_rows=7, on_rejected=lambda _: None, on_bytes=lambda _: None):
    with ThreadPoolExecutor(workers) as executor:
        return list(read_chunks(folder, USERS, executor, on_rejected, on_bytes, chunk_rows=chunk_rows))


def test_chunks_are_numbered_and_full_but_for_the_last(users):
    chunks = chunks_of(users)
    assert [chunk.number for chunk in chunks] == [0, 1, 2, 3, 4, 5]
    assert [chunk.rows.num_rows for chunk in chunks] == [7, 7, 7, 7, 7, 5]
    assert all(chunk.table is USERS and chunk.rows.schema == USERS.schema for chunk in chunks)
    ids = [user for chunk in chunks for user in chunk.rows["user_id"].to_pylist()]
    assert ids == list(range(1, 41))


def test_an_upload_can_be_resumed_with_or_without_the_compiled_parser(tmp_path, monkeypatch):
    """The bytes of every chunk are the same."""
    generate(tmp_path, scale=0.0002, seed=3)
    folder = open_folder(tmp_path, TABLES)

    def chunk_bytes(kernel):
        monkeypatch.setattr(chunks_module, "_LEAST_KERNEL_BYTES", 0)
        monkeypatch.setattr(chunks_module, "load_kernel", lambda: kernel)
        with ThreadPoolExecutor(2) as workers:
            return [
                encode(table, chunk.rows)
                for table in TABLES.values()
                for chunk in read_chunks(folder, table, workers, lambda _: None, chunk_rows=500)
            ]

    assert chunk_bytes(compiled_parser()) == chunk_bytes(None)


def test_a_small_folder_is_read_without_loading_the_compiled_parser(users, monkeypatch):
    monkeypatch.setattr(chunks_module, "load_kernel", lambda: pytest.fail("loaded"))
    assert len(chunks_of(users)) == 6


def test_rows_that_fill_the_last_chunk_leave_no_empty_one(users):
    assert [chunk.rows.num_rows for chunk in chunks_of(users, chunk_rows=20)] == [20, 20]
    assert [chunk.rows.num_rows for chunk in chunks_of(users, chunk_rows=1000)] == [40]


def test_a_table_without_rows_has_no_chunks(sound_folder):
    sound_folder.joinpath("users", "users_202401.csv").write_text("user_id,birthdate\n\n")
    assert chunks_of(open_folder(sound_folder, TABLES)) == []


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 17, 64, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_chunks_are_the_same_for_any_block_size_and_number_of_workers(
    users, monkeypatch, block_bytes, workers
):
    plain = [chunk.rows.to_pylist() for chunk in chunks_of(users)]
    monkeypatch.setattr(chunks_module, "read_blocks", partial(read_blocks, block_bytes=block_bytes))
    assert [chunk.rows.to_pylist() for chunk in chunks_of(users, workers)] == plain


@pytest.mark.parametrize("block_bytes", [1, 30, 4096])
def test_rejected_rows_of_all_files_are_reported_in_order(users, monkeypatch, block_bytes):
    monkeypatch.setattr(chunks_module, "read_blocks", partial(read_blocks, block_bytes=block_bytes))
    rejected = []
    chunks_of(users, on_rejected=rejected.append)
    assert [(row.file, row.line, row.reason) for row in rejected] == [
        ("users/users_202402.csv", 2, "user_id 'bad' is not a whole number"),
        ("users/users_202402.csv", 3, "user_id is empty"),
        ("users/users_202403.csv", 2, "not 2 fields"),
        ("users/users_202403.csv", 3, "birthdate '1990-02-30' is not a date like 1988-09-25"),
    ]


def test_all_bytes_after_the_headers_are_reported(users):
    told = []
    chunks_of(users, on_bytes=told.append)
    sizes = [file.size - len("user_id,birthdate\n") for file in users.files["users"]]
    assert sum(told) == sum(sizes)


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 12))
def test_cutting_keeps_all_rows_in_order(sizes, chunk_rows):
    numbers = iter(range(sum(sizes)))
    parts = [pa.table({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    made = list(cut(parts, chunk_rows))
    assert [n for part in made for n in part["n"].to_pylist()] == list(range(sum(sizes)))
    assert all(part.num_rows == chunk_rows for part in made[:-1])
    assert all(0 < part.num_rows <= chunk_rows for part in made[-1:])


@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_results_come_in_order_with_a_bounded_number_in_progress(ahead):
    drawn = []

    def items():
        for item in range(20):
            drawn.append(item)
            yield item

    received = []
    most = 0
    with ThreadPoolExecutor(3) as workers:
        for made in in_order(workers, lambda item: item * item, items(), ahead):
            most = max(most, len(drawn) - len(received))
            received.append(made)
    assert received == [item * item for item in range(20)]
    assert most == ahead


def test_an_item_that_fails_raises_and_cancels_the_rest():
    release = threading.Event()
    ran = []

    def work(item):
        ran.append(item)
        if item == 0:
            raise ValueError("item 0")
        release.wait(60)

    with ThreadPoolExecutor(1) as workers:
        try:
            with pytest.raises(ValueError, match="item 0"):
                list(in_order(workers, work, range(10), 4))
        finally:
            release.set()
    assert set(ran) <= {0, 1}


def test_leaving_early_cancels_the_rest():
    release = threading.Event()
    ran = []

    def work(item):
        ran.append(item)
        if item:
            release.wait(60)
        return item

    with ThreadPoolExecutor(1) as workers:
        results = in_order(workers, work, range(10), 4)
        try:
            assert next(results) == 0
            results.close()
        finally:
            release.set()
    assert set(ran) <= {0, 1}


def test_items_that_cannot_be_drawn_raise_and_cancel_the_rest():
    def items():
        yield 1
        raise OSError("no more")

    with ThreadPoolExecutor(1) as workers, pytest.raises(OSError, match="no more"):
        list(in_order(workers, str, items(), 4))


@pytest.mark.parametrize("most_bytes", [1000, 60, 43, 30])
def test_rejected_rows_come_in_parts_that_are_whole_files(tmp_path: Path, most_bytes: int) -> None:
    file = tmp_path / "rejected.csv"
    file.write_bytes(b'table,row\r\na,"1\r\n2"\r\nb,"3\r\n""4"""\r\nc,5\r\n')
    parts = list(rejected_parts(file, most_bytes))
    read = [list(csv.reader(io.StringIO(part.decode(), newline=""))) for part in parts]
    assert {tuple(rows[0]) for rows in read} == {("table", "row")}
    assert [row for rows in read for row in rows[1:]] == [["a", "1\r\n2"], ["b", '3\r\n"4"'], ["c", "5"]]
    assert max(map(len, parts)) <= most_bytes
    assert all(len(rows) > 1 for rows in read)


@pytest.mark.parametrize("letter", ["x", "é", "😀", '"'])
def test_only_a_row_that_fits_in_no_part_is_cut_and_says_so(tmp_path: Path, letter: str) -> None:
    file = tmp_path / "rejected.csv"
    with file.open("w", newline="", encoding="utf-8") as made:
        csv.writer(made).writerows([["line", "row"], ["2", letter * 1000], ["3", "short"]])
    parts = list(rejected_parts(file, 200))
    assert max(map(len, parts)) <= 200
    long, short = (
        row for part in parts for row in csv.reader(io.StringIO(part.decode())) if row[0] != "line"
    )
    assert long[1].startswith(letter * 10)
    assert long[1].endswith("(cut)")
    assert short == ["3", "short"]
