"""pyarrow alone, in one process: reads the CSV files with declared types, writes the columns as Parquet."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

MONEY = pa.decimal128(18, 4)
TABLES = {
    "transactions": {
        "transaction_id": pa.string(),
        "store_id": pa.int64(),
        "user_id": pa.float64(),
        "final_amount": MONEY,
        "created_at": pa.timestamp("s"),
    },
    "transaction_items": {
        "item_id": pa.int64(),
        "quantity": pa.int64(),
        "subtotal": MONEY,
        "created_at": pa.timestamp("s"),
    },
    "users": {"user_id": pa.int64(), "birthdate": pa.date32()},
    "stores": {"store_id": pa.int64(), "store_name": pa.string()},
    "menu_items": {"item_id": pa.int64(), "item_name": pa.string()},
}
REPEATING = ["store_id", "item_id", "quantity", "subtotal", "final_amount"]
CHUNK_ROWS = 131_072


def main(data: Path, out: Path) -> None:
    for name, types in TABLES.items():
        waiting: list[pa.RecordBatch] = []
        rows = number = 0
        for file in sorted(data.glob(f"*{name}/{name}*.csv")):
            options = csv.ConvertOptions(column_types=types, include_columns=list(types))
            for batch in csv.open_csv(file, csv.ReadOptions(block_size=4 << 20), convert_options=options):
                waiting.append(batch)
                rows += batch.num_rows
                while rows >= CHUNK_ROWS:
                    joined = pa.Table.from_batches(waiting)
                    write(joined.slice(0, CHUNK_ROWS), out / name, number)
                    waiting = joined.slice(CHUNK_ROWS).to_batches()
                    rows, number = rows - CHUNK_ROWS, number + 1
        if rows:
            write(pa.Table.from_batches(waiting), out / name, number)


def write(chunk: pa.Table, folder: Path, number: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    repeating = [name for name in REPEATING if name in chunk.column_names]
    pq.write_table(chunk, folder / f"chunk-{number:05d}.parquet", compression="lz4", use_dictionary=repeating)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
