"""The bytes of a chunk: Parquet that Spark reads natively, the same for the same rows."""

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.tables import Kind, Table


def encode(table: Table, rows: pa.Table) -> bytes:
    """One row group of Parquet, with the statistics by which Spark skips it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        row_group_size=max(rows.num_rows, 1),
        # Random ids do not get smaller, they only take time.
        compression={c.name: "none" if c.kind is Kind.TEXT else "lz4" for c in table.columns},
        use_dictionary=[column.name for column in table.columns if column.repeats],
        store_schema=False,
        write_page_checksum=True,  # or most flipped bits would be read as other values
    )
    return bytes(sink.getvalue())
