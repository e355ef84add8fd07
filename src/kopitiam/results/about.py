"""What a run asked, in one sentence for each question, with the parameters of the run."""

import json
from typing import Any

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.definitions import Question, Rank
from kopitiam.questions.layout import LAYOUT
from kopitiam.results.ringgit import ringgit


def about(question: Question, parameters: Parameters) -> str:
    """`sum(final_amount) of transactions of 2024 to 2025, for each store_name.`"""
    definition: dict[str, Any] = json.loads(question.definition)
    written = dict(definition.get("measure", []))  # pairs, or a table
    measures = " and ".join(dict.fromkeys(written[each.name] for each in question.measures))
    what = f"{measures} of {question.fact}" if measures else f"{question.fact}"
    parts = [f"{what}{_filters(definition.get('where', []), parameters)}"]
    if question.measures and question.keys:
        parts.append(f", for each {_listed([_shown_key(question, key.name) for key in question.keys])}")
    if question.rank is not None:
        parts.append(f"; {_ranked(question, question.rank, parameters)}")
    return f"{''.join(parts)}."


def parameters_asked(questions: tuple[Question, ...], parameters: Parameters) -> list[tuple[str, str]]:
    """The parameters that some question uses, with their names."""
    filters = {name for question in questions for name in question.filters if isinstance(name, str)}
    told = []
    if "@year" in filters:
        told.append(("Years", _years(parameters)))
    if "@hour" in filters:
        told.append(("Hours", f"{parameters.opening} to {parameters.closing}, both included"))
    if "@amount" in filters:
        told.append(("Least amount", ringgit(parameters.min_amount)))
    if any(question.rank is not None and question.rank.top is None for question in questions):
        told.append(("Places of a rank", f"{parameters.top:,}"))
    return told


def _filters(where: list[str], parameters: Parameters) -> str:
    said = {
        "@year": f" of {_years(parameters)}",
        "@hour": f", from {parameters.opening} to {parameters.closing} (both included)",
        "@amount": f", with a final_amount of {ringgit(parameters.min_amount)} or more",
    }
    named = [text for name, text in said.items() if name in where]
    own = [text for text in where if not text.startswith("@")]
    return "".join(named) + (f", where {' and '.join(own)}" if own else "")


def _years(parameters: Parameters) -> str:
    first, last = parameters.first_year, parameters.last_year
    return str(first) if first == last else f"{first} to {last}"


def _shown_key(question: Question, key: str) -> str:
    """The name that is shown in place of an id, or the key itself."""
    names = [
        each.name
        for each in question.attributes
        if question.identity(each) == key and LAYOUT[each.table].label == each.name
    ]
    return names[0] if names else key


def _ranked(question: Question, rank: Rank, parameters: Parameters) -> str:
    top = parameters.top if rank.top is None else rank.top
    of_each = _listed([_shown_key(question, key) for key in rank.within])
    best = "lowest" if rank.is_ascending else "highest"
    only = f"only the one with the {best}" if top == 1 else f"only the {top:,} with the {best}"
    return f"{f'of each {of_each} ' if of_each else ''}{only} {rank.by}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""
