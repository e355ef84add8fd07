"""SQL over a data set, as callers of the public client use it: send a query, wait for it, take its result."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from kopitiam.client.calls import Calls
from kopitiam.contracts.data_api import RunSql, SqlQuery
from kopitiam.contracts.errors import InputError, KopitiamError, QuestionError, Unavailable

SQL_FORMS = ("csv", "json", "parquet", "xlsx")
_WAIT_SECONDS = 5.0  # in one call


@dataclass(frozen=True)
class SqlResult:
    """The result of a query, which the gateway keeps for an hour.

    >>> result = client.sql("sales", "select city, count(*) as stores from stores group by city")
    >>> result.table().to_pandas()
    >>> result.save("cities.xlsx")
    """

    query: SqlQuery
    _calls: Calls = field(repr=False, compare=False)

    def table(self) -> pa.Table:
        """Return the rows; amounts are decimals."""
        data = self.content("parquet")
        return pq.read_table(pa.BufferReader(data))

    def content(self, form: str) -> bytes:
        """Return the result as a file in one of SQL_FORMS."""
        return self._calls.sql_result(self.query.data, f"{self.query.query}.{form}")

    def save(self, path: str | Path, form: str | None = None) -> None:
        """Write the result to a file, by default in the form that its name ends with.

        Raises InputError if it cannot be written, or the form is unknown.
        """
        target = Path(path)
        name = form or target.suffix.removeprefix(".").lower()
        if name not in SQL_FORMS:
            raise InputError(f"{target}: a result is saved as {', '.join(SQL_FORMS)}")
        self._calls.fetch_sql(self.query.data, f"{self.query.query}.{name}", target)

    def remove(self) -> None:
        """Remove the query and its result from the gateway."""
        self._calls.remove_sql(self.query.data, self.query.query)


def run_sql(calls: Calls, data: str, sql: str, **options: int | None) -> SqlResult:
    """Send a query with the options of RunSql, and return when it is done. An interrupted wait cancels it.

    Raises QuestionError or DataMissing with the reason if the query cannot be answered, and Unavailable if
    it may succeed when it is sent again.
    """
    try:
        request = RunSql(sql=sql, **options)
    except ValidationError as error:
        flaw = error.errors()[0]
        raise QuestionError(f"{flaw['loc'][0]}: {flaw['msg']}") from None
    query = calls.run_sql(data, request)
    try:
        while query.state not in ("done", "failed"):
            query = calls.sql_query(data, query.query, _WAIT_SECONDS)
    except BaseException:
        with suppress(KopitiamError):
            calls.remove_sql(data, query.query)
        raise
    if query.state == "failed":
        reason = query.error or "the query failed"
        raise Unavailable(reason) if query.again else QuestionError(reason)
    return SqlResult(query, calls)
