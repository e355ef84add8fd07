"""Calls for single pages of answers and of rejected rows, with search.

Only the row groups that hold a page are read; a search reads all, a batch at a time.
"""

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi import APIRouter, Query
from pydantic import Field

from kopitiam.contracts.api import AnswerPage, AskedQuestions, Number, OpenRun, RejectedPage
from kopitiam.contracts.api_types import Text
from kopitiam.contracts.data_api import DataOfRun
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS
from kopitiam.gateway.context import GatewayDep, RunDep
from kopitiam.gateway.problems import Refusal, refusals
from kopitiam.gateway.routes.results import Attempt, QuestionDep
from kopitiam.gateway.run_answers import are_provisional, latest_provisional, read_answers, rejected_files
from kopitiam.landing.rejected import COLUMNS as REJECTED_COLUMNS
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.question_set import QuestionSet
from kopitiam.questions.rows_behind import rows_behind
from kopitiam.results.answer_files import rejected_cells, rejected_lines
from kopitiam.results.answers import rows_per_batch
from kopitiam.results.cells import plain_text
from kopitiam.storage.port import Key

router = APIRouter(prefix="/api/v1/runs/{run}", tags=["results"])
_BATCH_ROWS = 4_096
Limit = Annotated[int, Query(ge=1, le=1000)]
Offset = Annotated[Number, Query(description="rows to leave out at the beginning")]
Keys = Annotated[
    tuple[Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)], ...],
    Query(description="the keys of the row, in their order, as in its CSV cells; an empty text is a null"),
]


@router.get("/results/{answer}/rows", responses=refusals(409, 410))
def get_rows(
    run: RunDep,
    question: QuestionDep,
    gateway: GatewayDep,
    *,
    offset: Offset = 0,
    limit: Limit = 50,
    search: Annotated[Text, Query(description="a text in any cell, ignoring case")] = "",
    provisional: Annotated[bool, Query(description="of the latest provisional answers")] = False,
    attempt: Attempt = None,
) -> AnswerPage:
    """Rows of an answer, in its order, with all columns, as exact text."""

    def page(folder: Key) -> AnswerPage:
        with gateway.storage.open(folder / question.file_name("parquet")) as file:
            rows = answer_page(file, offset, limit, search)
        return AnswerPage(
            answer=question.name,
            columns=rows.columns,
            rows=rows.rows,
            offset=offset,
            matched=rows.matched,
            total=rows.total,
            provisional=are_provisional(run, folder),
        )

    return read_answers(gateway, run, page, latest_provisional if provisional else None, attempt)


@router.get("/results/{answer}/rows-behind", responses=refusals(409, 431))
def get_rows_behind(run: RunDep, question: QuestionDep, gateway: GatewayDep, key: Keys = ()) -> OpenRun:
    """The body of `POST /runs` for a run that lists the rows behind one row of an answer, from the version of
    the data set that the answer is about. 409 `no_data_set` if the files of the run were not kept."""
    if run.data is None or run.data.version is None:
        message = f"run {run.run} is not over a version of a data set: its rows are not kept"
        raise Refusal(409, "no_data_set", message)
    files = [file for file in gateway.registry.run_files(run.run) if file.table == question.fact]
    kept = [name for name in LAYOUT[question.fact].by_name if all(name in file.columns for file in files)]
    definition = rows_behind(question, key, kept)
    parameters = QuestionSet.from_dict(run.questions).parameters.to_dict()
    row = json.dumps([run.run, question.name, *key])
    return OpenRun(
        label=definition["title"],
        questions=AskedQuestions(**parameters, ask=[definition["name"]], definitions=[definition]),
        idempotency_key=f"rows-behind-{hashlib.sha256(row.encode()).hexdigest()}",
        data=DataOfRun(name=run.data.name, version=run.data.version),
    )


@router.get("/rejected", responses=refusals(410))
def get_rejected_rows(
    run: RunDep, gateway: GatewayDep, offset: Offset = 0, limit: Limit = 50
) -> RejectedPage:
    """Rows that the client or the gateway rejected, with file, line and reason."""
    rows, more = rejected_page(rejected_lines(gateway.storage, rejected_files(gateway, run)), offset, limit)
    return RejectedPage(columns=list(REJECTED_COLUMNS), rows=rows, offset=offset, more=more)


@dataclass(frozen=True)
class Page:
    """Rows as texts, how many rows match the search, and how many there are."""

    columns: list[str]
    rows: list[list[str]]
    matched: int
    total: int


def answer_page(source: Any, offset: int, limit: int, search: str = "") -> Page:
    """Return one page of a Parquet file, or of its rows that match the search."""
    with pq.ParquetFile(source) as file:
        total = file.metadata.num_rows
        parts = _matching(file, search) if search else _page_groups(file, offset, limit)
        matched, rows, position = 0, list[list[str]](), offset if search else _offset_in_group(file, offset)
        for part in parts:
            rows += _texts(part.slice(min(position, part.num_rows), limit - len(rows)))
            position = max(0, position - part.num_rows)
            matched += part.num_rows
        return Page(file.schema_arrow.names, rows, matched if search else total, total)


def rejected_page(lines: Iterable[str], offset: int, limit: int) -> tuple[list[list[str]], bool]:
    """Return one page of CSV lines with a header, and whether there are more rows."""
    rows = list(itertools.islice(_rejected(lines), offset, offset + limit + 1))
    return rows[:limit], len(rows) > limit


def _rejected(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the rows with exactly the known columns: a client may have uploaded any bytes."""
    for row in rejected_cells(lines):
        yield [*row, *[""] * len(REJECTED_COLUMNS)][: len(REJECTED_COLUMNS)]


def _group_rows(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


def _page_groups(file: pq.ParquetFile, offset: int, limit: int) -> Iterator[pa.Table]:
    """Yield the rows of the row groups that hold the page."""
    first = 0
    for group, rows in enumerate(_group_rows(file)):
        if first < offset + limit and offset < first + rows:
            yield from _tables(file, group)
        first += rows


def _offset_in_group(file: pq.ParquetFile, offset: int) -> int:
    """Return where the page begins in the first row group that is read for it."""
    first = 0
    for rows in _group_rows(file):
        if offset < first + rows:
            break
        first += rows
    return offset - first


def _matching(file: pq.ParquetFile, search: str) -> Iterator[pa.Table]:
    """Yield the rows that have the text in a cell, ignoring case. Figures match as people write them too."""
    patterns = {field.name: _pattern(field.type, search) for field in file.schema_arrow}
    for group in range(file.metadata.num_row_groups):
        for table in _tables(file, group):
            hits = [
                pc.match_substring(_searchable(table[name].combine_chunks()), text, ignore_case=True)
                for name, text in patterns.items()
                if text is not None
            ]
            yield table.filter(functools.reduce(pc.or_, hits))


def _tables(file: pq.ParquetFile, group: int) -> Iterator[pa.Table]:
    """Yield a row group in batches, one at a time in memory: texts may be long."""
    rows = min(_BATCH_ROWS, rows_per_batch(file.schema_arrow, file.schema_arrow.names))
    for batch in file.iter_batches(rows, row_groups=[group]):
        yield pa.Table.from_batches([batch])


def _pattern(kind: pa.DataType, search: str) -> str | None:
    """Return the text to search for in a column of this type; None if it cannot match."""
    if pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        figure = re.sub(r"RM|[\s,]", "", search, flags=re.IGNORECASE)
        if not re.fullmatch(r"-?(\d+\.?\d*|\.\d*)", figure):
            return None
        return re.sub(r"(\.\d\d+?)0+$", r"\1", figure)
    is_searched = pa.types.is_string(kind) or re.fullmatch(r"[-.0-9]+", search)
    return search if is_searched else None


def _searchable(column: pa.Array) -> pa.Array:
    """Return the cells as text, amounts with at least two decimals, as they are shown."""
    text = plain_text(column)
    is_amount = pa.types.is_decimal(column.type)
    return pc.replace_substring_regex(text, r"(\.\d)$", r"\10") if is_amount else text


def _texts(rows: pa.Table) -> list[list[str]]:
    columns = [plain_text(column.combine_chunks()).to_pylist() for column in rows.columns]
    return [list(cells) for cells in zip(*columns, strict=True)]
