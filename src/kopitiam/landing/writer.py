"""Encodes a chunk as Parquet. The same rows give the same bytes, so that an upload can be resumed."""

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.tables import Table

# Not LZ4: when it filters by dictionary, the Parquet library of Spark 4.3 cannot read a dictionary page of
# LZ4_RAW that is larger than 8 KiB. docs/decisions/0013-parquet-codecs.md has the figures.
_CODEC = "zstd"
_LEVEL = 1
# A larger dictionary costs more time and bytes than the plain values do.
_MAX_DICTIONARY_BYTES = 64 << 10


def encode(table: Table, rows: pa.Table) -> bytes:
    """Return one row group of Parquet, with the statistics by which Spark skips it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows.combine_chunks(),  # pages, and whether a dictionary is kept, would depend on the pieces
        sink,
        row_group_size=max(rows.num_rows, 1),
        compression=_CODEC,
        compression_level=_LEVEL,
        use_dictionary=[column.name for column in table.columns if column.repeats],
        dictionary_pagesize_limit=_MAX_DICTIONARY_BYTES,
        store_schema=False,
        write_page_checksum=True,  # or most flipped bits would be read as other values
    )
    return bytes(sink.getvalue())
