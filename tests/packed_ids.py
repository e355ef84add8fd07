"""Texts from the two numbers of UUIDs, by Python's own class."""

import uuid

import pyarrow as pa

from kopitiam.contracts.tables import Table

_ALL_BITS = (1 << 64) - 1


def uuid_text(high: int, low: int) -> str:
    return str(uuid.UUID(int=(high & _ALL_BITS) << 64 | (low & _ALL_BITS)))


def with_texts(table: Table, rows: pa.Table) -> pa.Table:
    """Return packed rows as a table of texts."""
    columns = []
    for column in table.columns:
        cells = rows[column.name]
        if column.is_uuid:
            packed = zip(cells.to_pylist(), *(rows[half].to_pylist() for half in column.halves), strict=True)
            cells = [text if high is None else uuid_text(high, low) for text, high, low in packed]
        columns.append(cells)
    return pa.table(columns, schema=table.schema)
