"""The questions and parameters of a run. Tables, partials and stages of the run follow from this value.

The registry and `summary.json` store it as JSON, with the definitions: neither needs the original file.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from kopitiam.contracts.errors import QuestionError, RunFailed
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Table
from kopitiam.questions.catalog import builtin, check_together, read_json
from kopitiam.questions.definition_errors import DefinitionError, nearest, one_line
from kopitiam.questions.definitions import Question
from kopitiam.questions.groups import MAX_GROUPS, require_few_groups
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.plans import PartialPlan, StagePlan, plan_partials, plan_stages


@dataclass(frozen=True)
class QuestionSet:
    """Parameters and questions, in the order of their answers."""

    parameters: Parameters
    questions: tuple[Question, ...]

    @classmethod
    def of_catalog(cls, parameters: Parameters | None = None) -> "QuestionSet":
        """The questions of the catalog, which are the default of a run."""
        return cls(parameters or Parameters(), tuple(builtin().values()))

    @classmethod
    def select(
        cls, parameters: Parameters, own: Sequence[Question] = (), names: Sequence[str] | None = None
    ) -> "QuestionSet":
        """The questions with these names, from the catalog and `own`.

        Without names: all of `own`, or the catalog if `own` is empty. Raises QuestionError for an unknown
        name, for two questions with one name, and for two stages with one name.
        """
        check_together([*builtin().values(), *own], "questions")
        known = builtin() | {question.name: question for question in own}
        if names is None:
            names = [question.name for question in own] or list(builtin())
        if not names:
            raise QuestionError("ask: no question is named")
        for name in names:
            if name not in known:
                hint = f"there are {', '.join(known)}{nearest(name, tuple(known))}"
                raise QuestionError(one_line(f"ask: there is no question {name[:60]!r}; {hint}"))
        selected = cls(parameters, tuple(known[name] for name in dict.fromkeys(names)))
        _ = selected.stages  # raises QuestionError if two stages share a name
        return selected

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "QuestionSet":
        """Reads the result of `to_dict` or `to_request`; runs of early versions have parameters only."""
        return _from_text(json.dumps(values, sort_keys=True))

    @classmethod
    def of_run(cls, values: Mapping[str, Any]) -> "QuestionSet":
        """Like `from_dict`, for a stored run. Raises RunFailed if this version cannot read it."""
        try:
            return cls.from_dict(values)
        except QuestionError as error:
            raise RunFailed(f"this version cannot read the questions of the run: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """All parameters and definitions, to store with a run: another version may have another catalog."""
        return {
            **self.parameters.to_dict(),
            "ask": [question.name for question in self.questions],
            "definitions": [json.loads(question.definition) for question in self.questions],
        }

    def to_request(self) -> dict[str, Any]:
        """The body of a request: parameters and, unless it is the catalog, names and own definitions."""
        values = self.parameters.to_dict()
        if self.questions == tuple(builtin().values()):
            return values
        values["ask"] = [question.name for question in self.questions]
        if own := [json.loads(question.definition) for question in self.questions if not question.is_builtin]:
            values["definitions"] = own
        return values

    def require_answerable(self, max_groups: int = MAX_GROUPS) -> None:
        """Raises QuestionError if the keys of a question can make more than `max_groups` groups."""
        for question in self.questions:
            try:
                require_few_groups(question, self.parameters, max_groups)
            except DefinitionError as error:
                raise error.with_question(question.name) from None

    @cached_property
    def by_name(self) -> dict[str, Question]:
        return {question.name: question for question in self.questions}

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The tables that clients send, in that order, each with the columns that the questions read."""
        needed: dict[str, set[str]] = {}
        for question in self.questions:
            for table, columns in question.reads.items():
                needed.setdefault(table, set()).update(columns)
        return {name: LAYOUT[name].normal_form(needed[name]) for name in LAYOUT if name in needed}

    @cached_property
    def partials(self) -> tuple[PartialPlan, ...]:
        return plan_partials(self.questions)

    @cached_property
    def stages(self) -> StagePlan:
        return plan_stages(self.questions, self.partials, list(self.tables))


@lru_cache(maxsize=256)
def _from_text(text: str) -> QuestionSet:
    values = json.loads(text)
    stored = read_json(values.get("definitions", []), has_builtin=True)
    known = builtin() | {question.name: question for question in stored}
    names = values.get("ask") or list(builtin())
    if unknown := [name for name in names if name not in known]:
        raise QuestionError(f"there is no question {unknown[0]!r}")
    return QuestionSet(Parameters.from_dict(values), tuple(known[name] for name in names))


def tables_of(names: Mapping[str, Iterable[str]]) -> dict[str, Table]:
    """Tables in normal form, given the names of their columns."""
    return {table: LAYOUT[table].normal_form(columns) for table, columns in names.items()}
