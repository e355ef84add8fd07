"""Batches of an answer: bounded in rows and bytes, the same for a table and for files."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopitiam.contracts.tables import MAX_TEXT_BYTES, MAX_TEXT_CHARACTERS
from kopitiam.results import answers as answers_module
from kopitiam.results.answers import BATCH_BYTES, BATCH_ROWS, ComputedAnswer, rows_per_batch

LONGEST = "\N{SMILING FACE WITH SUNGLASSES}" * MAX_TEXT_CHARACTERS


def table_of(rows: int, seed: int = 7) -> pa.Table:
    draw = random.Random(seed)
    names = [
        draw.choice("ab☕") * draw.choice([1, 3, 200 if row % 2_000 < 1_000 else 9]) for row in range(rows)
    ]
    return pa.table({"number": pa.array(range(rows)), "name": names, "city": names[::-1]})


def written(folder: Path, table: pa.Table, cuts: list[int], group: int) -> ComputedAnswer:
    files = []
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        files.append(folder / f"part-{number:05d}.parquet")
        pq.write_table(table.slice(begin, end - begin), files[-1], row_group_size=group)
    return ComputedAnswer(files=tuple(files))


def test_a_table_and_files_with_the_same_rows_give_the_same_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(answers_module, "BATCH_ROWS", 256)
    monkeypatch.setattr(answers_module, "BATCH_BYTES", 32 << 10)
    table = table_of(3_000)
    ragged = pa.concat_tables([table.slice(0, 1), table.slice(1, 700), table.slice(701)])
    kept = [ComputedAnswer(table), ComputedAnswer(ragged)]
    for number, (cuts, group) in enumerate([([], 5_000), ([], 37), ([1, 999, 2_999], 100)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept.append(written(folder, table, cuts, group))

    batches = [list(answer.batches()) for answer in kept]

    sizes = [batch.num_rows for batch in batches[0]]
    assert len(set(sizes)) > 2  # some are full of rows, some of bytes
    assert [[batch.num_rows for batch in each] for each in batches] == [sizes] * len(kept)
    assert all(pa.Table.from_batches(each) == table for each in batches)


def test_short_texts_make_batches_of_many_rows():
    table = table_of(BATCH_ROWS + 1).drop(["city"])
    short = table.set_column(1, "name", pa.array(["a store"] * table.num_rows))
    assert [batch.num_rows for batch in ComputedAnswer(short).batches()] == [BATCH_ROWS, 1]


@pytest.mark.parametrize("texts", [1, 7])
def test_the_longest_texts_make_batches_of_few_bytes(tmp_path, texts):
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), [LONGEST])
    table = pa.table({f"name {number}": names for number in range(texts)})
    file = tmp_path / "part-00000.parquet"
    pq.write_table(table, file, store_schema=False)
    assert file.stat().st_size < 1 << 20

    rows = [(batch.num_rows, batch.nbytes) for batch in ComputedAnswer(files=(file,)).batches()]

    assert sum(count for count, _ in rows) == 20_000
    assert max(size for _, size in rows) < 2 * BATCH_BYTES
    assert rows_per_batch(pq.read_schema(file), table.column_names) * MAX_TEXT_BYTES * texts <= BATCH_BYTES


def test_no_rows_make_no_batches(tmp_path):
    empty = table_of(0)
    assert list(ComputedAnswer(empty).batches()) == []
    assert list(written(tmp_path, empty, [], 10).batches()) == []


def test_selected_columns_are_read(tmp_path):
    table = table_of(100)
    for answer in (ComputedAnswer(table), written(tmp_path, table, [50], 10)):
        assert pa.Table.from_batches(answer.batches(["number"])) == table.select(["number"])
