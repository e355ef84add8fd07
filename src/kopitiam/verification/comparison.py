"""Answer files against the answers computed here, cell by cell and in order, inside DuckDB."""

from collections.abc import Iterator
from pathlib import Path

import duckdb

from kopitiam.contracts.errors import InputError
from kopitiam.questions.definitions import Question
from kopitiam.verification.answers import CELLS, POSITION
from kopitiam.verification.csv_files import open_csv
from kopitiam.verification.reading import IS_WHOLE, count_overlong_rows, read_as_text
from kopitiam.verification.report import Check
from kopitiam.verification.rows import first_line

SHOWN_PER_KIND = 10

MISPLACED = f"""
SELECT count(*) FROM expected FULL JOIN found USING ({POSITION})
WHERE expected.{CELLS} IS DISTINCT FROM found.{CELLS}
"""  # noqa: S608
NOT_THERE = f"SELECT {CELLS} FROM expected EXCEPT ALL SELECT {CELLS} FROM found"  # noqa: S608
UNEXPECTED = f"SELECT {CELLS} FROM found EXCEPT ALL SELECT {CELLS} FROM expected"  # noqa: S608


def compare(database: duckdb.DuckDBPyConnection, answer: Question, results: Path, scratch: Path) -> Check:
    """The file of one answer in the folder `results` against the table `answer_<name>`."""
    expected = database.table(f"answer_{answer.name}")
    expected.create_view("expected")
    try:
        misfits = _load_found(database, answer, results / answer.csv_name, scratch)
    except InputError as error:
        return Check(answer.name, answer.csv_name, _count(expected), 0, (str(error),), 1)
    differences = list(_differences(database, answer, misfits))
    return Check(
        name=answer.name,
        file=answer.csv_name,
        rows_expected=_count(expected),
        rows_found=_count(database.table("found")) + misfits,
        differences=tuple(f"{answer.csv_name}: {line}" for _, lines in differences for line in lines),
        difference_count=sum(count for count, _ in differences),
    )


def _load_found(database: duckdb.DuckDBPyConnection, answer: Question, path: Path, scratch: Path) -> int:
    """Makes the view `found`; gives the number of rows that have too few or too many fields."""
    if not path.is_file():
        raise InputError(f"{answer.csv_name}: not there")
    file = open_csv(path, scratch)
    if file.header != answer.shown:
        wanted, there = ",".join(answer.shown), ",".join(file.header)
        raise InputError(f"{answer.csv_name}: the header must be {wanted} and is {there}")
    texts = ", ".join(f"coalesce(\"{column}\", '')" for column in answer.shown)
    try:
        read_as_text(database, [file], answer.shown).project(
            f"row_number() OVER () AS {POSITION}, [{texts}] AS {CELLS}, {IS_WHOLE}"
        ).create(f"read_answer_{answer.name}")
    except duckdb.Error as error:
        raise InputError(f"{answer.csv_name}: cannot be read: {first_line(error)}") from None
    rows = database.table(f"read_answer_{answer.name}")
    rows.filter(IS_WHOLE).create_view("found")
    return _count(rows.filter(f"NOT {IS_WHOLE}")) + count_overlong_rows(database, [file])


def _differences(
    database: duckdb.DuckDBPyConnection, answer: Question, misfits: int
) -> Iterator[tuple[int, list[str]]]:
    """For each kind of difference, how many there are and the first of them in words."""
    if misfits:
        yield misfits, [f"{misfits} rows without exactly {len(answer.shown)} fields"]
    if not database.sql(MISPLACED).fetchall()[0][0]:
        return
    are_all_there = True
    for query, wording in ((NOT_THERE, "expected {} – not there"), (UNEXPECTED, "unexpected: {}")):
        rows = database.sql(query)
        if count := _count(rows):
            first = rows.order(CELLS).limit(SHOWN_PER_KIND).fetchall()
            yield count, [wording.format(", ".join(cells)) for (cells,) in first]
            are_all_there = False
    if are_all_there:
        yield 1, ["rows are right but not in the required order"]


def _count(rows: duckdb.DuckDBPyRelation) -> int:
    return int(rows.aggregate("count(*)").fetchall()[0][0])
