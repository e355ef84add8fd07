"""Calls about questions: the catalog, the check of definitions, and the questions that a new run asks."""

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
from kopitiam.questions.catalog import Check, builtin, read_json, read_toml
from kopitiam.questions.definitions import Question
from kopitiam.questions.explanations import explain
from kopitiam.questions.groups import require_few_groups
from kopitiam.questions.question_set import QuestionSet
from kopitiam.results.charts.plan import require_drawable

router = APIRouter(prefix="/api/v1/questions", tags=["questions"])
_TOML = "questions"


@router.get("")
def get_catalog(caller: CallerDep) -> Catalog:
    """The built-in questions, as definitions that clients can use as models for their own."""
    del caller
    return Catalog(questions=[_view(question) for question in builtin().values()])


@router.post("/check", responses=refusals(408, 413, 415))
def check(gateway: GatewayDep, caller: CallerDep, request: CheckQuestions) -> CheckedQuestions:
    """Check definitions, as JSON or as the text of a TOML file. Returns what each question reads, keeps and
    shows, or the first flaw with its line."""
    del caller
    settings = gateway.settings.questions
    check_question = _check(settings.parameters(), settings)
    try:
        own = (
            read_toml(request.toml, _TOML, check=check_question)
            if request.toml
            else read_json(request.definitions, check_question)
        )
        QuestionSet.select(settings.parameters(), own)
    except QuestionError as error:
        return CheckedQuestions(questions=[], flaws=[Flaw(line=error.line, message=str(error))])
    return CheckedQuestions(questions=[_view(question) for question in own], flaws=[])


def requested_questions(request: AskedQuestions, defaults: QuestionsSection) -> QuestionSet:
    """Return the questions of a new run. Raises QuestionError or ConfigError if they are invalid."""
    parameters_given = request.model_dump(exclude_none=True, exclude={"ask", "definitions"})
    parameters = Parameters.from_dict(defaults.parameters().to_dict() | parameters_given)
    own = read_json(request.definitions, _check(parameters, defaults))
    questions = QuestionSet.select(parameters, own, request.ask)
    questions.require_answerable(defaults.max_groups)
    return questions


def _check(parameters: Parameters, settings: QuestionsSection) -> Check:
    """Return a check of the number of groups, which depends on the parameters, and of the chart."""

    def check(question: Question) -> None:
        require_few_groups(question, parameters, settings.max_groups)
        require_drawable(question)

    return check


def _view(question: Question) -> QuestionView:
    return QuestionView(
        name=question.name,
        title=question.title,
        builtin=question.is_builtin,
        definition=json.loads(question.definition),
        file=question.file_name("csv"),
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
