"""Measures the bytes per row of each column, as clients encode a full chunk.

    python -m tools.benchmarks.column_bytes

Makes one month of synthetic sales at full size, takes the first chunk of each large table, and encodes every
column by itself. `kopitiam.questions.explanations` has the figures that this prints.
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from kopitiam.contracts.tables import CHUNK_ROWS
from kopitiam.contracts.uuids import pack
from kopitiam.intake.cells import convert
from kopitiam.landing.chunks import encode
from kopitiam.questions.layout import LAYOUT
from kopitiam.synthetic.generator import write_month_tables
from kopitiam.synthetic.months import plan

SCALE, SEED, MONTH = 1.0, 7, 18  # a month in which most customers are known
MEASURED = ("transactions", "transaction_items", "users")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kopi-bytes-") as folder:
        for _ in write_month_tables(Path(folder), SEED, plan(SCALE)[MONTH]):
            pass
        for table in MEASURED:
            [file] = Path(folder, table).glob("*.csv")
            print(f'    "{table}": {{')
            for column, cost in bytes_per_row(table, file).items():
                print(f'        "{column}": {cost:.1f},')
            print("    },")


def bytes_per_row(table: str, file: Path) -> dict[str, float]:
    """Bytes per row of each column of the table, encoded alone."""
    names = list(LAYOUT[table].by_name)
    texts = pa_csv.read_csv(
        file,
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    ).slice(0, CHUNK_ROWS)
    costs = {}
    for name in names:
        alone = LAYOUT[table].normal_form([name])
        column = alone.columns[0]
        cells = convert(column, texts[name].combine_chunks())
        rows = pa.Table.from_arrays(pack(cells) if column.is_uuid else [cells], schema=alone.packed.schema)
        empty = len(encode(alone, rows.slice(0, 0)))
        costs[name] = (len(encode(alone, rows)) - empty) / rows.num_rows
    return costs


if __name__ == "__main__":
    main()
