"""Reads the clauses of a definition that are tables: `rank`, `chart` and `stages`.

Each function raises DefinitionError if the clause is wrong.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from kopitiam.contracts.parameters import MAX_TOP
from kopitiam.questions.definition_errors import DefinitionError, shown
from kopitiam.questions.definitions import Chart, Mark, Named, Rank, Stages
from kopitiam.questions.expressions import ColumnRef

MARKS: tuple[Mark, ...] = get_args(Mark)
_STAGE = re.compile(r"[a-z][a-z0-9_]{0,79}")


def read_rank(clause: Any, keys: Sequence[Named], measures: Sequence[Named]) -> Rank | None:
    """The rank of a definition; None without `rank`."""
    if clause is None:
        return None
    if not isinstance(clause, Mapping) or set(clause) - {"by", "within", "top", "order"}:
        raise DefinitionError(
            "rank", 'expected { by = "measure", within = ["key", …], top = 3, order = "desc" }'
        )
    if not measures:
        raise DefinitionError(
            "rank", 'there is no measure to rank by; add one: measure = { purchases = "count(*)" }'
        )
    by, within, top = clause.get("by"), clause.get("within", []), clause.get("top")
    if not isinstance(by, str) or by not in {measure.name for measure in measures}:
        raise DefinitionError(
            "rank", f"by = {shown(by)}: expected one of {', '.join(m.name for m in measures)}"
        )
    names = [key.name for key in keys]
    if not isinstance(within, list) or not all(key in names for key in within):
        choice = (
            f"expected some of {', '.join(names)}"
            if names
            else "there is no key; leave it out, or add by = …"
        )
        raise DefinitionError("rank", f"within: {choice}")
    if top != "@top" and not (type(top) is int and 1 <= top <= MAX_TOP):
        raise DefinitionError(
            "rank", f'top = {shown(top)}: expected 1 to {MAX_TOP:,}, or "@top" for the run\'s own'
        )
    if (order := clause.get("order", "desc")) not in ("asc", "desc"):
        raise DefinitionError("rank", f'order = {shown(order)}: expected "asc" or "desc"')
    return Rank(by, tuple(dict.fromkeys(within)), None if top == "@top" else top, order == "asc")


def read_chart(clause: Any, known: Sequence[str]) -> Chart | None:
    """The chart of a definition, with columns among `known`; None without `chart`."""
    if clause is None:
        return None
    if not isinstance(clause, Mapping) or set(clause) - {"mark", "x", "y", "color"}:
        raise DefinitionError(
            "chart", 'expected { mark = "bar", x = "column", y = "column", color = "column" }'
        )
    mark = clause.get("mark")
    if mark not in MARKS:
        raise DefinitionError("chart", f"mark = {shown(mark)}: expected one of {', '.join(MARKS)}")
    for axis in ("x", "y", "color"):
        choices = [*known, "count"] if mark == "histogram" and axis == "y" else known
        if (axis in clause or axis != "color") and clause.get(axis) not in choices:
            raise DefinitionError(
                "chart", f"{axis} = {shown(clause.get(axis))}: expected one of {', '.join(choices)}"
            )
    return Chart(mark, clause["x"], clause["y"], clause.get("color", ""))


def read_stages(clause: Any, name: str, rank: Rank | None, attributes: Sequence[ColumnRef]) -> Stages:
    """The names that the definition gives, and default names for the others."""
    tables = list(dict.fromkeys(attribute.table for attribute in attributes))
    default: dict[str, Any] = {
        "aggregate": f"agg_{name}",
        "rank": f"{'rank' if rank else 'sum'}_{name}",
        "join": [f"join_{table}_{name}" for table in tables],
    }
    if not isinstance(clause, Mapping) or set(clause) - set(default):
        raise DefinitionError("stages", 'expected { aggregate = "…", rank = "…", join = ["…"] }')
    chosen = default | dict(clause)
    joins = chosen["join"]
    if not isinstance(joins, list) or len(joins) != len(tables):
        raise DefinitionError(
            "stages", f"join: expected a name for each of {', '.join(tables) or 'no table'}"
        )
    for stage in (chosen["aggregate"], chosen["rank"], *joins):
        if not isinstance(stage, str) or not _STAGE.fullmatch(stage):
            raise DefinitionError(
                "stages", f"{shown(stage)} is not a valid name of a stage; use one such as agg_{name}"
            )
        if stage.startswith(("filter_", "check_")):
            raise DefinitionError(
                "stages", f"{stage[:60]}: filter_ and check_ are reserved prefixes; use agg_{name}"
            )
    return Stages(chosen["aggregate"], chosen["rank"], tuple(joins))
