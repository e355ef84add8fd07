"""The profile `wild`: every cell is valid, the same seed gives the same bytes, seeds cover all choices."""

import csv
from collections import Counter
from dataclasses import asdict, fields, replace
from decimal import Decimal
from pathlib import Path

import pytest

from catalog_tables import TABLES
from kopitiam.contracts.errors import InputError
from kopitiam.contracts.money import to_text
from kopitiam.intake.blocks import read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm
from kopitiam.questions.layout import LAYOUT
from kopitiam.synthetic import Profile, WildShape, generate
from kopitiam.synthetic.months import plan
from kopitiam.synthetic.shapes import AMOUNT_VARIETIES, Customers, Ids, Order, Texts, Unmatched
from kopitiam.synthetic.wild import WildSales
from kopitiam.synthetic.wild_cells import (
    BOOLEANS,
    EDGE_DATES,
    EDGE_INSTANTS,
    HOSTILE,
    LARGEST_COUNT,
    LARGEST_ID,
    LARGEST_UNITS,
    LONGEST_TEXT,
)
from kopitiam.verification.rows import load_tables
from sampling import IS_FULL

pytestmark = pytest.mark.slow

SEEDS = range(12 if IS_FULL else 3)
SMALL = 0.0005
LARGEST_LONG = 2**63 - 1
Rows = list[dict[str, str]]


def make(out: Path, shape: WildShape, scale: float = SMALL, seed: int = 1) -> Path:
    months = plan(scale)
    for _ in WildSales.of_shape(shape, seed, months).write(out):
        pass
    return out


def read(out: Path, table: str) -> Rows:
    rows: Rows = []
    for path in sorted((out / table).iterdir()):
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def bytes_of(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.csv")}


@pytest.fixture
def shape() -> WildShape:
    return replace(WildShape.of_seed(0), stores=7, items=8, texts=Texts.PLAIN, ids=Ids.SMALL)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    made = [
        generate(tmp_path / name, SMALL, seed, profile=Profile.WILD)
        for name, seed in (("a", 4), ("b", 4), ("c", 5))
    ]

    assert made[0] == made[1]
    assert made[0].shape == WildShape.of_seed(4)
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert bytes_of(tmp_path / "a") != bytes_of(tmp_path / "c")


def test_twelve_seeds_in_a_row_try_every_choice_of_every_axis() -> None:
    shapes = [WildShape.of_seed(seed) for seed in range(12)]
    tried = {field.name: len({getattr(shape, field.name) for shape in shapes}) for field in fields(WildShape)}

    assert tried == {
        "stores": 3,
        "items": 3,
        "months": 2,
        "amounts": len(AMOUNT_VARIETIES) + 1,
        "largest_amount": 2,
        "anonymous_percent": 3,
        "ids": 3,
        "texts": 3,
        "spread": 3,
        "customers": 4,
        "unmatched": 3,
        "instants": 2,
        "order": 3,
        "quantities": 3,
        "variety": 3,
        "empty_percent": 5,
    }
    assert len({tuple(map(str, asdict(shape).values())) for shape in shapes}) == len(shapes)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_is_valid_and_no_sum_of_any_rows_overflows(tmp_path: Path, seed: int) -> None:
    generated = generate(tmp_path, SMALL, seed, profile=Profile.WILD)

    with load_tables(tmp_path) as tables:
        for table, count in tables.counts.items():
            assert (count.used, count.rejected) == (generated.rows[table], 0)
    for table, column, units in (
        ("transactions", "final_amount", 10_000),
        ("transaction_items", "subtotal", 10_000),
        ("transaction_items", "quantity", 1),
    ):
        figures = [Decimal(row[column]) * units for row in read(tmp_path, table)]
        assert sum(map(abs, figures)) <= LARGEST_LONG


@pytest.mark.parametrize("seed", SEEDS)
def test_every_cell_of_every_column_passes_the_intake(tmp_path: Path, seed: int) -> None:
    generated = generate(tmp_path, SMALL, seed, profile=Profile.WILD)

    for name, table in LAYOUT.items():
        form = table.normal_form(table.by_name)
        rows = 0
        for path in (tmp_path / name).iterdir():
            intake = NormalForm(form, read_header(path), path.name)
            for block in read_blocks(path):
                normalized = intake.normalize(block)
                assert list(normalized.rejected) == []
                rows += normalized.rows.num_rows
        assert rows == generated.rows[name]


def columns_of(out: Path) -> dict[str, list[str]]:
    """The cells of the columns that the catalog's questions do not read."""
    found = {}
    for name, table in LAYOUT.items():
        rows = read(out, name)
        for column in table.by_name.keys() - set(TABLES[name].schema.names if name in TABLES else ()):
            found[f"{name}.{column}"] = [row[column] for row in rows]
    return found


@pytest.mark.parametrize("percent", [0, 1, 50, 99, 100])
def test_optional_columns_are_empty_as_often_as_the_shape_says(
    tmp_path: Path, shape: WildShape, percent: int
) -> None:
    out = make(tmp_path, replace(shape, stores=7_000, variety=7_000, empty_percent=percent, months=1))

    for name, cells in columns_of(out).items():
        table, _, column = name.partition(".")
        if len(cells) > 5_000 and LAYOUT[table].by_name[column].is_optional:
            empty = sum(not cell for cell in cells) * 100 / len(cells)
            assert empty == pytest.approx(percent, abs=3), name


def test_optional_columns_have_as_many_values_as_the_shape_says(tmp_path: Path, shape: WildShape) -> None:
    few = columns_of(make(tmp_path / "few", replace(shape, stores=5_000, variety=7, empty_percent=0)))
    many = columns_of(make(tmp_path / "many", replace(shape, variety=10_000, empty_percent=1)))
    one = columns_of(make(tmp_path / "one", replace(shape, variety=1, empty_percent=1, months=1)))

    several = {name for name, cells in one.items() if len(set(cells) - {""}) > 1}
    assert several == {"transaction_items.transaction_id"}
    for name in ("stores.city", "transactions.original_amount", "transactions.voucher_id"):
        assert 3 <= len(set(few[name])) <= 7, name
    for name in (
        "transactions.original_amount",
        "transactions.discount_applied",
        "transactions.voucher_id",
        "transactions.payment_method_id",
        "transaction_items.unit_price",
        "vouchers.valid_from",
        "vouchers.discount_value",
        "payment_methods.category",
    ):
        assert len(set(many[name])) > 2_000, name


def test_optional_columns_reach_their_bounds(tmp_path: Path, shape: WildShape) -> None:
    wild = replace(shape, items=100, variety=100, empty_percent=0, texts=Texts.HOSTILE, months=1)
    columns = columns_of(make(tmp_path, replace(wild, unmatched=Unmatched.NONE)))

    assert set(EDGE_DATES) <= set(columns["menu_items.available_from"])
    assert set(BOOLEANS) == set(columns["menu_items.is_seasonal"])
    assert set(EDGE_INSTANTS) <= set(columns["users.registered_at"])
    assert set(HOSTILE) & set(columns["users.gender"])
    assert set(HOSTILE) <= set(columns["menu_items.category"])
    assert {to_text(LARGEST_UNITS), to_text(-LARGEST_UNITS)} <= set(columns["menu_items.price"])


@pytest.mark.parametrize("variety", AMOUNT_VARIETIES)
def test_a_chunk_has_as_many_distinct_amounts_as_its_shape_says(
    tmp_path: Path, shape: WildShape, variety: int
) -> None:
    out = make(tmp_path, replace(shape, months=1, amounts=(variety,), order=Order.SHUFFLED))

    for table, column in (("transactions", "final_amount"), ("transaction_items", "subtotal")):
        amounts = Counter(Decimal(row[column]) for row in read(out, table))
        at_bounds = [amount for amount in amounts if abs(amount) * 10_000 == LARGEST_UNITS]
        assert len(amounts) - len(at_bounds) >= min(variety, amounts.total()) - 4
        assert len(amounts) - len(at_bounds) <= variety
        assert len(at_bounds) == (0 if variety == 1 else 2)


def test_amounts_vary_from_month_to_month(tmp_path: Path, shape: WildShape) -> None:
    out = make(tmp_path, replace(shape, months=24, amounts=(1_000, 1)))

    for place, path in enumerate(sorted((out / "transactions").iterdir())):
        with path.open(newline="") as file:
            amounts = {row["final_amount"] for row in csv.DictReader(file)}
        assert (len(amounts) == 1) is (place % 2 == 1)


def test_ids_quantities_and_times_reach_their_bounds(tmp_path: Path) -> None:
    wild = replace(WildShape.of_seed(0), stores=7, items=8, ids=Ids.BOUNDS, unmatched=Unmatched.NONE)
    bounds = replace(wild, customers=Customers.ANY, anonymous_percent=0)
    out = make(tmp_path, bounds)

    sales, items = read(out, "transactions"), read(out, "transaction_items")
    for name, ids in (
        ("stores", {row["store_id"] for row in sales}),
        ("menu_items", {row["item_id"] for row in items}),
        ("users", {row["user_id"].removesuffix(".0") for row in sales}),
    ):
        listed = {next(iter(row.values())) for row in read(out, name)}
        assert {"0", "1", str(LARGEST_ID)} <= ids & listed
    assert {str(LARGEST_COUNT), str(-LARGEST_COUNT)} <= {row["quantity"] for row in items}
    assert set(EDGE_INSTANTS) <= {row["created_at"] for row in sales}
    assert set(EDGE_INSTANTS) <= {row["created_at"] for row in items}


def test_names_are_hostile_and_as_long_as_they_may_be(tmp_path: Path, shape: WildShape) -> None:
    hostile = make(tmp_path / "a", replace(shape, stores=100, texts=Texts.HOSTILE, unmatched=Unmatched.NONE))
    long = make(tmp_path / "b", replace(shape, texts=Texts.LONG, unmatched=Unmatched.NONE))

    names = [row["store_name"] for row in read(hostile, "stores")]
    assert set(HOSTILE) <= set(names)
    assert set(HOSTILE) & {row["transaction_id"] for row in read(hostile, "transactions")}
    assert max(map(len, names)) == LONGEST_TEXT
    assert max(len(row["item_name"]) for row in read(long, "menu_items")) == LONGEST_TEXT
    assert max(len(row["transaction_id"]) for row in read(long, "transactions")) == LONGEST_TEXT


@pytest.mark.parametrize(
    ("customers", "most", "buyers"),
    [(Customers.ONE, 7_300, 1), (Customers.ONCE, 1, 7_300), (Customers.IN_TURN, 1_460, 5)],
)
def test_one_customer_buys_everything_or_each_buys_once_or_all_tie(
    tmp_path: Path, shape: WildShape, customers: Customers, most: int, buyers: int
) -> None:
    out = make(tmp_path, replace(shape, customers=customers, anonymous_percent=0))

    purchases = Counter(row["user_id"] for row in read(out, "transactions"))

    assert (len(purchases), purchases.most_common(1)[0][1]) == (buyers, most)


def test_ids_are_missing_from_their_tables_where_the_shape_says_so(tmp_path: Path, shape: WildShape) -> None:
    missing = {}
    for unmatched in Unmatched:
        out = make(tmp_path / unmatched, replace(shape, unmatched=unmatched))
        listed = {row["store_id"] for row in read(out, "stores")}
        missing[unmatched] = len({row["store_id"] for row in read(out, "transactions")} - listed)

    assert missing == {Unmatched.NONE: 0, Unmatched.SOME: 3, Unmatched.ALL: 7}


@pytest.mark.parametrize("order", Order)
def test_rows_are_sorted_reversed_or_shuffled(tmp_path: Path, shape: WildShape, order: Order) -> None:
    out = make(tmp_path, replace(shape, months=1, order=order))

    times = [row["created_at"] for row in read(out, "transactions")]

    assert (times == sorted(times)) is (order is Order.SORTED)
    assert (times == sorted(times, reverse=True)) is (order is Order.REVERSED)


def test_a_shape_of_one_month_has_one_file_with_all_rows(tmp_path: Path, shape: WildShape) -> None:
    out = make(tmp_path, replace(shape, months=1))

    assert [path.name for path in (out / "transactions").iterdir()] == ["transactions_202402.csv"]
    assert len(read(out, "transactions")) == 7_300


def test_progress_ends_at_the_total_of_every_table(tmp_path: Path) -> None:
    last: dict[str, tuple[int, int]] = {}
    generated = generate(
        tmp_path,
        0.0001,
        seed=1,
        progress=lambda table, done, total: last.update({table: (done, total)}),
        profile=Profile.WILD,
    )

    assert last == {table: (rows, rows) for table, rows in generated.rows.items()}
    assert generated.bytes == sum(map(len, bytes_of(tmp_path).values()))


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(InputError, match="not empty"):
        generate(tmp_path, SMALL, seed=1, profile=Profile.WILD)
