"""Computes answers in DuckDB from the accepted rows, in the order and spelling of the answer files.

Each question becomes a table `answer_<name>` with the columns `POSITION` (of the row in the file, from 1) and
`CELLS` (its texts), and a table `missing_<name>` of ids that their table lacks. Only the definitions are
shared with the pipeline. Names from definitions are quoted, because they may be SQL keywords.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb

from kopitiam.contracts.errors import InputError
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import RANK, NamedFilter, Question
from kopitiam.questions.expressions import Aggregate, ColumnRef, Expression, columns_in
from kopitiam.questions.layout import LAYOUT
from kopitiam.verification.expressions import aggregate, as_text, to_sql
from kopitiam.verification.rows import first_line, load_tables, questions_or_catalog

POSITION, CELLS = '"row position"', '"row cells"'  # no column of a question has a blank in its name
_FILTERS = {
    "@year": "year(created_at) BETWEEN {first_year} AND {last_year}",
    "@hour": "CAST(created_at AS TIME) BETWEEN TIME '{opening}' AND TIME '{closing}'",
    "@amount": "final_amount >= CAST('{min_amount}' AS DECIMAL(18, 4))",
}


def answer_questions(
    database: duckdb.DuckDBPyConnection, parameters: Parameters, questions: Iterable[Question] | None = None
) -> None:
    """Create the tables of each question; None means the catalog's questions.

    Raises InputError if a figure has more digits than DuckDB can compute.
    """
    questions = questions_or_catalog(questions)
    tables = dict.fromkeys(a.table for question in questions for a in _attributes(question))
    for table in tables:
        _create_known(database, table)
    for question in questions:
        try:
            _AnswerTables(question, parameters).create(database)
        except duckdb.Error as error:
            raise InputError(f"question {question.name}: cannot be checked: {first_line(error)}") from None


def count_unmatched(
    database: duckdb.DuckDBPyConnection, questions: Iterable[Question] | None = None
) -> dict[str, int]:
    """Count, by table, the distinct ids that the answers need and the table lacks."""
    questions = questions_or_catalog(questions)
    tables = dict.fromkeys(a.table for question in questions for a in _attributes(question))
    unions = " UNION ".join(f'FROM "missing_{question.name}"' for question in questions)
    counts = dict(
        database.sql(f"SELECT table_name, count(*) FROM ({unions}) GROUP BY table_name").fetchall()  # noqa: S608
    )
    return {table: counts.get(table, 0) for table in tables}


def expected_answers(
    data: Path, parameters: Parameters, questions: Iterable[Question] | None = None
) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each answer as its CSV file must have them."""
    questions = questions_or_catalog(questions)
    with load_tables(data, questions) as tables:
        answer_questions(tables.database, parameters, questions)
        answers = {question.name: tables.database.table(f"answer_{question.name}") for question in questions}
        return {name: _rows_in_order(answer) for name, answer in answers.items()}


def _rows_in_order(answer: duckdb.DuckDBPyRelation) -> list[tuple[str, ...]]:
    return [tuple(cells) for (cells,) in answer.order(POSITION).project(CELLS).fetchall()]


def _attributes(question: Question) -> list[ColumnRef]:
    """Return the attributes that a question reads from other tables, in its keys and beside them."""
    in_keys = [c for key in question.keys for c in columns_in(key.expression) if c.is_attribute]
    return list(dict.fromkeys([*in_keys, *question.attributes]))


def _create_known(database: duckdb.DuckDBPyConnection, table: str) -> None:
    """Create `known_<table>` with one row per id; of an id that is listed twice, the smallest values."""
    key = LAYOUT[table].key
    others = [name for name, *_ in database.sql(f"DESCRIBE {table}").fetchall() if name != key]
    smallest = "".join(f", min({name}) AS {name}" for name in others)
    database.execute(f"CREATE TABLE known_{table} AS SELECT {key}{smallest} FROM {table} GROUP BY {key}")  # noqa: S608


@dataclass(frozen=True)
class _AnswerTables:
    """The SQL of one question, from its rows to its answer."""

    question: Question
    parameters: Parameters

    def create(self, database: duckdb.DuckDBPyConnection) -> None:
        name = self.question.name
        database.execute(f'CREATE TABLE "counted_{name}" AS {self._counted()}')
        database.execute(f'CREATE TABLE "groups_{name}" AS {self._groups()}')
        database.execute(f'CREATE TABLE "answer_{name}" AS {self._placed()}')
        database.execute(f'CREATE TABLE "missing_{name}" AS {self._missing()}')
        database.execute(f'DROP TABLE "counted_{name}"; DROP TABLE "groups_{name}"')

    def _counted(self) -> str:
        """The rows that pass the filters, with the attributes that are keys."""
        question = self.question
        conditions = [self._condition(condition) for condition in question.filters] or ["TRUE"]
        in_keys = dict.fromkeys(a for key in question.keys for a in _key_attributes(key.expression))
        joined = {a.table: a for a in in_keys}.values()
        shown = "".join(
            f", {_attribute_value(a, f'{question.fact}.{a.reference}')} AS {_attribute_name(a)}"
            for a in in_keys
        )
        joins = " ".join(_join(a.table, f"{question.fact}.{a.reference}") for a in joined)
        return (
            f"SELECT {question.fact}.*{shown} FROM {question.fact} {joins} WHERE {' AND '.join(conditions)}"  # noqa: S608
        )

    def _condition(self, condition: NamedFilter | Expression) -> str:
        if not isinstance(condition, str):
            return to_sql(condition, self._fact_name)
        parameters = self.parameters
        return _FILTERS[condition].format(
            first_year=parameters.first_year,
            last_year=parameters.last_year,
            opening=parameters.opening,
            closing=parameters.closing,
            min_amount=format(Decimal(parameters.min_amount), "f"),
        )

    def _fact_name(self, column: ColumnRef | Aggregate) -> str:
        assert isinstance(column, ColumnRef)
        return f"{self.question.fact}.{column.name}"

    def _groups(self) -> str:
        """Keys and measures, ranked and limited if the question has a rank."""
        question = self.question
        keys = [f"{to_sql(key.expression, _counted_name)} AS {_quoted(key.name)}" for key in question.keys]
        if question.lists_rows:
            return f'SELECT {", ".join(keys)} FROM "counted_{question.name}"'  # noqa: S608
        names = {a: f'"aggregate {number}"' for number, a in enumerate(question.aggregates)}
        parts = [f"{_aggregate(a)} AS {name}" for a, name in names.items()]
        grouped = f'SELECT {", ".join([*keys, *parts])} FROM "counted_{question.name}"'  # noqa: S608
        if question.keys:
            grouped += f" GROUP BY {', '.join(str(n) for n in range(1, len(keys) + 1))}"
        named = [_quoted(key.name) for key in question.keys] + [
            f"{to_sql(measure.expression, lambda a: names[a])} AS {_quoted(measure.name)}"  # type: ignore[index]
            for measure in question.measures
        ]
        return self._ranked(f"SELECT {', '.join(named)} FROM ({grouped})")  # noqa: S608

    def _ranked(self, measured: str) -> str:
        rank = self.question.rank
        if rank is None:
            return measured
        others = [_quoted(key.name) for key in self.question.keys if key.name not in rank.within]
        direction = "ASC" if rank.is_ascending else "DESC"
        by = f"{_quoted(rank.by)} {direction} NULLS LAST"
        order = ", ".join([by, *(f"{key} NULLS FIRST" for key in others)])
        within = f"PARTITION BY {', '.join(map(_quoted, rank.within))} " if rank.within else ""
        top = self.parameters.top if rank.top is None else rank.top
        return (
            f"SELECT *, row_number() OVER ({within}ORDER BY {order}) AS {RANK} FROM ({measured}) "  # noqa: S608
            f"QUALIFY {RANK} <= {top}"
        )

    def _placed(self) -> str:
        question = self.question
        shown = question.attributes
        ids = {a.table: f"groups.{_quoted(question.identity(a))}" for a in shown}
        values = "".join(f", {_attribute_value(a, ids[a.table])} AS {_quoted(a.name)}" for a in shown)
        joins = " ".join(_join(table, identity) for table, identity in ids.items())
        named = f'SELECT groups.*{values} FROM "groups_{question.name}" AS groups {joins}'  # noqa: S608
        places = ", ".join(f"{_quoted(column)} NULLS FIRST" for column in question.sort_columns)
        kinds = {column.name: column.kind for column in question.answer_columns} | {RANK: Kind.COUNT}
        cells = ", ".join(as_text(kinds[column], _quoted(column)) for column in question.shown)
        position = f"row_number() OVER ({f'ORDER BY {places}' if places else ''})"
        return f"SELECT {position} AS {POSITION}, [{cells}] AS {CELLS} FROM ({named})"  # noqa: S608

    def _missing(self) -> str:
        """Ids without a record in their table: those of the answer, or of all rows for attributes in keys."""
        question = self.question
        in_keys = {a for key in question.keys for a in _key_attributes(key.expression)}
        queries = []
        for attribute in _attributes(question):
            table, is_key = attribute.table, attribute in in_keys
            identity = attribute.reference if is_key else _quoted(question.identity(attribute))
            origin = f'"{"counted" if is_key else "groups"}_{question.name}"'
            queries.append(
                f"SELECT '{table}' AS table_name, {identity} AS id FROM {origin} "  # noqa: S608
                f"WHERE {identity} NOT IN (SELECT {LAYOUT[table].key} FROM {table})"
            )
        if not queries:
            return "SELECT '' AS table_name, CAST(0 AS BIGINT) AS id WHERE FALSE"
        return " UNION ".join(queries)


def _key_attributes(expression: Expression) -> list[ColumnRef]:
    return [column for column in columns_in(expression) if column.is_attribute]


def _attribute_name(attribute: ColumnRef) -> str:
    return f"{attribute.table}__{attribute.name}"


def _attribute_value(attribute: ColumnRef, identity: str) -> str:
    """The value of an attribute; an unknown name is replaced by the id."""
    value = f"known_{attribute.table}.{attribute.name}"
    if attribute.name != LAYOUT[attribute.table].label:
        return value
    return f"coalesce({value}, CAST({identity} AS VARCHAR))"


def _join(table: str, identity: str) -> str:
    return f"LEFT JOIN known_{table} ON {identity} = known_{table}.{LAYOUT[table].key}"


def _counted_name(column: ColumnRef | Aggregate) -> str:
    assert isinstance(column, ColumnRef)
    return _attribute_name(column) if column.is_attribute else column.name


def _aggregate(kept: Aggregate) -> str:
    return aggregate(kept, to_sql(kept.argument, _counted_name) if kept.argument else "")


def _quoted(name: str) -> str:
    return f'"{name}"'
