"""Questions of a run in one sentence each, with the values of the run's parameters.

The steps of a definition are explained in `questions.explanations`.
"""

import json
from typing import Any

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.definitions import Question, Rank
from kopitiam.questions.explanations import join_words
from kopitiam.questions.layout import LAYOUT
from kopitiam.results.cells import ringgit


def describe(question: Question, parameters: Parameters) -> str:
    """A sentence such as `sum(final_amount) of transactions of 2024 to 2025, for each store_name.`"""
    definition: dict[str, Any] = json.loads(question.definition)
    expressions = dict(definition.get("measure", []))  # pairs or a table
    measures = " and ".join(dict.fromkeys(expressions[measure.name] for measure in question.measures))
    what = f"{measures} of {question.fact}" if measures else f"{question.fact}"
    parts = [f"{what}{_filters(definition.get('where', []), parameters)}"]
    if question.measures and question.keys:
        parts.append(f", for each {join_words([_shown_key(question, key.name) for key in question.keys])}")
    if question.rank is not None:
        parts.append(f"; {_ranked(question, question.rank, parameters)}")
    return f"{''.join(parts)}."


def parameters_used(questions: tuple[Question, ...], parameters: Parameters) -> list[tuple[str, str]]:
    """Names and values of the parameters that at least one of the questions uses."""
    filters = {name for question in questions for name in question.filters if isinstance(name, str)}
    used = []
    if "@year" in filters:
        used.append(("Years", _years(parameters)))
    if "@hour" in filters:
        used.append(("Hours", f"{parameters.opening} to {parameters.closing}, both included"))
    if "@amount" in filters:
        used.append(("Least amount", ringgit(parameters.min_amount)))
    if any(question.rank is not None and question.rank.top is None for question in questions):
        used.append(("Places of a rank", f"{parameters.top:,}"))
    return used


def _filters(where: list[str], parameters: Parameters) -> str:
    texts = {
        "@year": f" of {_years(parameters)}",
        "@hour": f", from {parameters.opening} to {parameters.closing} (both included)",
        "@amount": f", with a final_amount of {ringgit(parameters.min_amount)} or more",
    }
    named = [text for name, text in texts.items() if name in where]
    own = [text for text in where if not text.startswith("@")]
    return "".join(named) + (f", where {' and '.join(own)}" if own else "")


def _years(parameters: Parameters) -> str:
    first, last = parameters.first_year, parameters.last_year
    return str(first) if first == last else f"{first} to {last}"


def _shown_key(question: Question, key: str) -> str:
    """The column with the name of what the key identifies, if that is shown; else the key."""
    names = [
        attribute.name
        for attribute in question.attributes
        if question.identity(attribute) == key and LAYOUT[attribute.table].label == attribute.name
    ]
    return names[0] if names else key


def _ranked(question: Question, rank: Rank, parameters: Parameters) -> str:
    top = parameters.top if rank.top is None else rank.top
    of_each = join_words([_shown_key(question, key) for key in rank.within])
    best = "lowest" if rank.is_ascending else "highest"
    only = f"only the one with the {best}" if top == 1 else f"only the {top:,} with the {best}"
    return f"{f'of each {of_each} ' if of_each else ''}{only} {rank.by}"
