"""Plans of the built-in questions, and their partials written by hand."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.answers import AnswerPlan
from kopitiam.pipeline.compiler.partials import PartialLayout
from kopitiam.questions.plans import PartialPlan
from kopitiam.questions.question_set import QuestionSet

CATALOG = QuestionSet.of_catalog()
KINDS = tuple(plan.name for plan in CATALOG.partials)


def partial_plan(name: str, questions: QuestionSet = CATALOG) -> PartialPlan:
    return next(plan for plan in questions.partials if name in plan.questions)


def answer_plan(
    name: str, parameters: Parameters | None = None, questions: QuestionSet = CATALOG
) -> AnswerPlan:
    return AnswerPlan(
        questions.by_name[name], partial_plan(name, questions), parameters or questions.parameters
    )


def partials_of(spark: SparkSession, plan: PartialPlan, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Kept values and aggregates, in the order of the plan; sums as they are where they fit."""
    layout = PartialLayout(plan)
    names = (*layout.kept.values(), *layout.aggregates.values())
    by_name = [dict(zip(names, row, strict=True)) for row in rows]
    return spark.createDataFrame(
        [[row.get(name) for name in layout.schema.names] for row in by_name], layout.schema
    )
