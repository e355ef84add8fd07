"""The answers of a run as record batches, with the columns and the row order that every form has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kopitiam.results.text import MONEY, money_of_units

BATCH_ROWS = 65_536


def _product_of_the_month(figure: str, kind: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            ("year_month_created_at", pa.string()),
            ("item_id", pa.int64()),
            ("item_name", pa.string()),
            (figure, kind),
            ("item_is_matched", pa.bool_()),
        ]
    )


_SCHEMAS = {
    "1": pa.schema([("transaction_id", pa.string()), ("final_amount", MONEY)]),
    "2_1": _product_of_the_month("sellings_qty", pa.int64()),
    "2_2": _product_of_the_month("profit_sum", MONEY),
    "3": pa.schema(
        [
            ("year_half_created_at", pa.string()),
            ("store_id", pa.int64()),
            ("store_name", pa.string()),
            ("tpv", MONEY),
            ("store_is_matched", pa.bool_()),
        ]
    ),
    "4": pa.schema(
        [
            ("store_id", pa.int64()),
            ("store_name", pa.string()),
            ("rank", pa.int64()),
            ("user_id", pa.int64()),
            ("birthdate", pa.date32()),
            ("purchases", pa.int64()),
            ("store_is_matched", pa.bool_()),
            ("user_is_matched", pa.bool_()),
        ]
    ),
}
_ORDERS = {
    "2_1": ("year_month_created_at",),
    "2_2": ("year_month_created_at",),
    "3": ("year_half_created_at", "store_name", "store_id"),
    "4": ("store_name", "birthdate", "user_id", "store_id"),
}


@dataclass(frozen=True)
class RawAnswers:
    """As the pipeline leaves them, money in units: Q1 as sorted Parquet files, the small rest in memory."""

    large_sales: tuple[Path, ...]
    products: pa.Table
    tpv: pa.Table
    customers: pa.Table


@dataclass(frozen=True)
class AnswerSet:
    raw: RawAnswers

    def schema(self, name: str) -> pa.Schema:
        return _SCHEMAS[name]

    def rows(self, name: str) -> int:
        if name == "1":
            return sum(pq.read_metadata(file).num_rows for file in self.raw.large_sales)
        return int(self._small(name).num_rows)

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        """In the order of the answer file; never more than one batch of Q1 in memory."""
        if name == "1":
            for file in self.raw.large_sales:
                for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
                    yield _with_money(batch, _SCHEMAS[name])
        else:
            yield from self._small(name).to_batches()

    def unmatched(self) -> dict[str, int]:
        """How many distinct ids of the answers their table does not know."""
        stores = pa.concat_tables(
            [_select(table, "store_id", "store_is_matched") for table in (self.raw.tpv, self.raw.customers)]
        )
        return {
            "stores": _count_unmatched(stores, "store_id", "store_is_matched"),
            "menu_items": _count_unmatched(self.raw.products, "item_id", "item_is_matched"),
            "users": _count_unmatched(self.raw.customers, "user_id", "user_is_matched"),
        }

    def _small(self, name: str) -> pa.Table:
        schema = _SCHEMAS[name]
        match name:
            case "2_1" | "2_2":
                figure = schema.names[3]
                table = self.raw.products.filter(pc.equal(self.raw.products["kind"], figure))
                table = table.rename_columns([figure if c == "figure" else c for c in table.column_names])
            case "3":
                table = self.raw.tpv
            case _:
                table = self.raw.customers
        order = [(column, "ascending", "at_start") for column in _ORDERS[name]]
        table = table.take(pc.sort_indices(table, order))
        return pa.Table.from_batches([_with_money(batch, schema) for batch in table.to_batches()], schema)


def _with_money(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        money_of_units(batch[field.name]) if field.type == MONEY else batch[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _select(table: pa.Table, key: str, flag: str) -> pa.Table:
    return pa.table({key: table[key].cast(pa.int64()), flag: table[flag]})


def _count_unmatched(table: pa.Table, key: str, flag: str) -> int:
    return len(pc.unique(table[key].filter(pc.invert(table[flag]))))
