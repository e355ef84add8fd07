"""Hand-made answers for tests of their presentation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.answers import answer_schema

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class MadeAnswers:
    """Rows by question, as tuples in the order of the schema; two rows per batch."""

    tables: dict[str, Rows] = field(default_factory=dict)
    question_set: QuestionSet = field(default_factory=QuestionSet.of_catalog)

    def schema(self, name: str) -> pa.Schema:
        return answer_schema(self.question_set.by_name[name])

    def rows(self, name: str) -> int:
        return len(self.tables.get(name, []))

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.table(name).to_batches(max_chunksize=2):
            yield batch if columns is None else batch.select(list(columns))

    def write(self, folder: Path) -> Path:
        """Write the files of a download."""
        folder.mkdir(parents=True, exist_ok=True)
        for question in self.question_set.questions:
            pq.write_table(self.table(question.name), folder / question.file_name("parquet"))
        return folder

    def table(self, name: str) -> pa.Table:
        schema = self.schema(name)
        rows = [dict(zip(schema.names, row, strict=True)) for row in self.tables.get(name, [])]
        return pa.Table.from_pylist(rows, schema)


def question(definition: str) -> Question:
    """One question from the text of its definition, without the line `[[question]]`."""
    return read_toml(f"[[question]]\n{definition}", "test.toml")[0]


def answers_to(definition: str, rows: Rows, parameters: Parameters | None = None) -> MadeAnswers:
    parsed_question = question(definition)
    return MadeAnswers(
        {parsed_question.name: rows}, QuestionSet(parameters or Parameters(), (parsed_question,))
    )


def sales(*amounts: str) -> Rows:
    return [(f"sale-{number:04d}", Decimal(amount)) for number, amount in enumerate(amounts)]


def small_answers(store: str = "North", item: str = "Latte") -> MadeAnswers:
    return MadeAnswers(
        {
            "1": sales("75", "76.5", "100.075", "12055387.76"),
            "2_1": [("2024-01", 1, item, 3031, True), ("2024-02", 99, "99", 12, False)],
            "2_2": [
                ("2024-01", 2, "Espresso", Decimal("12055387.76"), True),
                ("2024-02", 1, item, Decimal("70.5"), True),
            ],
            "3": [
                ("2024-H1", 1, store, Decimal("115922.885"), True),
                ("2024-H1", 2, "South", Decimal("40"), True),
                ("2024-H2", 1, store, Decimal("12055387.76"), True),
            ],
            "4": [
                (1, store, 2, 7, None, 8, True, False),
                (1, store, 1, 8, date(1990, 1, 1), 1009, True, True),
                (2, "South", 1, 5, date(1980, 2, 2), 2, True, True),
            ],
        }
    )
