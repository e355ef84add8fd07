"""The catalog of questions, and own definitions: judged before anything is sent, and asked with a run."""

import json

from fastapi import APIRouter

from kopitiam.contracts.api import (
    AnswerColumnView,
    AskedQuestions,
    Catalog,
    CheckedQuestions,
    CheckQuestions,
    Flaw,
    QuestionView,
)
from kopitiam.contracts.config import QuestionsSection
from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.gateway.context import CallerDep, GatewayDep
from kopitiam.gateway.problems import refusals
from kopitiam.questions.catalog import builtin, read_json, read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.explanations import explain
from kopitiam.questions.question_set import QuestionSet

router = APIRouter(prefix="/api/v1/questions", tags=["questions"])
_TOML = "questions"


@router.get("")
def get_catalog(caller: CallerDep) -> Catalog:
    """The built-in questions, in the form in which anybody may write others."""
    del caller
    return Catalog(questions=[_view(question) for question in builtin().values()])


@router.post("/check", responses=refusals(408, 413, 415))
def check(gateway: GatewayDep, caller: CallerDep, request: CheckQuestions) -> CheckedQuestions:
    """Judge definitions, as JSON or as the text of a TOML file: what each question reads, keeps and shows, or
    the first flaw with its line."""
    del caller
    parameters = gateway.settings.questions.ask()
    try:
        own = read_toml(request.toml, _TOML) if request.toml else read_json(request.definitions)
        asked = QuestionSet.select(parameters, own)
        asked.require_answerable(gateway.settings.questions.max_groups)
    except QuestionError as error:
        return CheckedQuestions(questions=[], flaws=[Flaw(line=error.line, message=str(error))])
    return CheckedQuestions(questions=[_view(question) for question in own], flaws=[])


def asked_questions(request: AskedQuestions, defaults: QuestionsSection) -> QuestionSet:
    """What a run asks. Raises QuestionError or ConfigError if it makes no sense."""
    given = request.model_dump(exclude_none=True, exclude={"ask", "definitions"})
    parameters = Parameters.from_dict(defaults.ask().to_dict() | given)
    asked = QuestionSet.select(parameters, read_json(request.definitions), request.ask)
    asked.require_answerable(defaults.max_groups)
    return asked


def _view(question: Question) -> QuestionView:
    return QuestionView(
        name=question.name,
        title=question.title,
        builtin=question.is_builtin,
        definition=json.loads(question.definition),
        file=question.csv_name,
        reads={table: list(columns) for table, columns in question.reads.items()},
        columns=[
            AnswerColumnView(
                name=column.name,
                kind=column.kind.value,
                role=column.role,
                shown=column.name in question.shown,
            )
            for column in question.answer_columns
        ],
        explains=explain(question),
    )
