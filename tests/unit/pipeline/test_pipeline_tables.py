"""Upper bounds for the bytes of tables and answers: measured where a broadcast is possible."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import MAX_TEXT_BYTES, MAX_TEXT_CHARACTERS
from kopitiam.pipeline.tables import (
    BROADCAST_BYTES,
    BROADCAST_ROWS,
    COLLECTED_BYTES,
    TableSize,
    can_be_collected,
    table_size,
)
from kopitiam.questions.catalog import read_json
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.storage.local import LocalStorage
from kopitiam.storage.port import Key

STORES = LAYOUT["stores"].normal_form(["store_id", "store_name", "city"])
LONGEST = "\N{SMILING FACE WITH SUNGLASSES}" * MAX_TEXT_CHARACTERS
CATALOG = QuestionSet.of_catalog().by_name


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path)


def stored(storage: LocalStorage, number: int, names: list[str], cities: list[str | None]) -> Key:
    columns = {"store_id": range(len(names)), "store_name": names, "city": cities}
    key = Key(f"chunk-{number}.parquet")
    rows = pa.table({name: list(values) for name, values in columns.items()}, STORES.schema)
    pq.write_table(rows, storage.path(key), store_schema=False)
    return key


def test_texts_of_all_files_are_measured_in_bytes(storage):
    files = [
        stored(storage, 0, ["Kopi", "☕"], [None, "Ipoh"]),
        stored(storage, 1, ["Kopitiam"], [None]),
    ]
    size = table_size(storage, STORES, files, 3)
    assert size.longest == {"store_name": 8, "city": 4}
    assert size.bytes == 3 * 16 + len("KopiKopitiamIpoh") + len("☕".encode())
    assert size.is_small


def test_a_small_file_with_many_long_names_is_not_small(storage):
    rows = 5_000  # 20 MB of names
    file = stored(storage, 0, [LONGEST] * rows, [None] * rows)
    assert storage.path(file).stat().st_size < 100_000
    size = table_size(storage, STORES, [file], rows)
    assert (size.is_small, size.longest["store_name"]) == (False, MAX_TEXT_BYTES)
    assert size.bytes > BROADCAST_BYTES


def test_files_are_opened_only_if_a_broadcast_is_possible(storage):
    users = LAYOUT["users"].normal_form(["user_id", "birthdate"])
    absent = [Key("absent.parquet")]
    assert table_size(storage, users, absent, BROADCAST_ROWS).is_small  # without texts
    assert not table_size(storage, STORES, absent, BROADCAST_ROWS + 1).is_small
    with pytest.raises(FileNotFoundError):
        table_size(storage, STORES, absent, BROADCAST_ROWS)


def test_longer_names_leave_room_for_fewer_rows():
    question = CATALOG["3"]
    short, long = ({"stores": TableSize(1, 1, {"store_name": longest})} for longest in (20, MAX_TEXT_BYTES))
    rows = COLLECTED_BYTES // 4 // MAX_TEXT_BYTES
    assert can_be_collected(question, rows, short, 1)
    assert not can_be_collected(question, rows, long, 1)
    assert can_be_collected(question, rows // 2, long, 1)
    assert not can_be_collected(question, rows // 2, long, 100)  # each of 100 questions has a share


@pytest.mark.parametrize(
    ("key", "is_long"),
    [
        ("transaction_id", True),
        ("stores.city", False),  # as long as the longest city
        ("year_half(created_at)", False),
        ("store_id", False),
    ],
)
def test_only_free_text_keys_may_have_the_longest_texts(key, is_long):
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "where": ["@year"],
        "by": {"key": key},
        "measure": {"purchases": "count(*)"},
        "columns": ["key", "purchases"],
        "order": ["key"],
    }
    asked = QuestionSet.select(Parameters(), read_json([definition]))
    sizes = {"stores": TableSize(1, 1, {"city": 10})}
    rows = COLLECTED_BYTES // 4 // MAX_TEXT_BYTES
    assert can_be_collected(asked.by_name["mine"], rows, sizes, 1) is not is_long
