"""Bounds on what a checked query becomes when Spark plans it.

Spark writes a WITH query in full wherever it is named, and an alias wherever a filter above it is moved below
it: a short text may stand for a plan that no machine can hold, and planning cannot be cancelled. The same is
true of LIKE with many wildcards, which takes exponential time for a single row.
"""

from collections.abc import Iterator

from sqlglot import exp

from kopitiam.contracts.errors import QuestionError

MOST_TABLES = 100  # in the FROM and JOIN of all parts, with every WITH query written in full
MOST_JOINS = 10  # and subqueries in conditions and values, with every WITH query written in full
MOST_NAMED = 50  # WITH queries
MOST_REFERENCES = 2_000  # to columns of tables, in an expression with every alias written in full
MOST_GROUPING_COLUMNS = 10  # of ROLLUP, CUBE and GROUPING SETS, which group up to two to the power of this
MOST_WILDCARDS = 3
_GROUPINGS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_CLAUSES = ("where", "having", "group", "order")


def require_bounded(query: exp.Expr) -> None:
    """Raises QuestionError if the plan of this query may be too large."""
    _Expansion(query).require_bounded()
    for group in query.find_all(exp.Group):
        columns = sum(1 for _ in group.find_all(exp.Column, exp.Literal))
        if group.find(*_GROUPINGS) and columns > MOST_GROUPING_COLUMNS:
            message = f"ROLLUP, CUBE and GROUPING SETS take at most {MOST_GROUPING_COLUMNS} columns"
            raise QuestionError(message)
    for like in query.find_all(exp.Like, exp.ILike):
        pattern = like.expression
        if not isinstance(pattern, exp.Literal) or pattern.name.count("%") > MOST_WILDCARDS:
            raise QuestionError(f"LIKE takes a text with at most {MOST_WILDCARDS} %")


class _Expansion:
    """Sizes of the parts of one query with everything written in full."""

    def __init__(self, query: exp.Expr) -> None:
        self._query = query
        self._bodies: dict[str, exp.Expr] = {}
        for cte in query.find_all(exp.CTE):
            name = cte.alias.lower()
            if name in self._bodies:
                raise QuestionError(f"WITH {name[:60]}: named twice")
            self._bodies[name] = cte.this
        if len(self._bodies) > MOST_NAMED:
            raise QuestionError(f"has more than {MOST_NAMED} WITH queries")
        self._tables: dict[str, int] = {}
        self._joins: dict[str, int] = {}
        self._references: dict[int, int] = {}
        self._open: set[str] = set()

    def require_bounded(self) -> None:
        if self._tables_in(self._query) > MOST_TABLES:
            raise QuestionError(f"reads more than {MOST_TABLES} tables, with WITH queries written in full")
        if self._joins_in(self._query) > MOST_JOINS:
            raise QuestionError(
                f"has more than {MOST_JOINS} joins and subqueries, with WITH queries written in full"
            )
        for select in self._query.find_all(exp.Select):
            self._references_in(select)

    def _joins_in(self, node: exp.Expr) -> int:
        """The joins of a query that has few tables, written in full."""
        own = sum(isinstance(part, exp.Join) or _is_in_expression(part) for part in _parts(node))
        return own + sum(self._joins_of(table.name.lower()) for table in _tables(node))

    def _joins_of(self, name: str) -> int:
        if name not in self._bodies:
            return 0
        if name not in self._joins:
            self._joins[name] = self._joins_in(self._bodies[name])
        return self._joins[name]

    def _tables_in(self, node: exp.Expr) -> int:
        return sum(self._tables_of(table.name.lower()) for table in _tables(node))

    def _tables_of(self, name: str) -> int:
        if name not in self._bodies:
            return 1
        if name not in self._tables:
            if name in self._open:
                raise QuestionError(f"WITH {name[:60]}: refers to itself")
            self._open.add(name)
            self._tables[name] = min(self._tables_in(self._bodies[name]), MOST_TABLES + 1)
        return self._tables[name]

    def _references_in(self, select: exp.Select) -> int:
        """The most references to columns of tables in one output column."""
        if id(select) not in self._references:
            inside = max((self._references_in(source) for source in self._sources(select)), default=1)
            aliases: dict[str, int] = {}
            for output in select.expressions:
                aliases[output.alias_or_name.lower()] = _count(output, inside, aliases)
            clauses = [clause for key in _CLAUSES if (clause := select.args.get(key))]
            for clause in (*clauses, *select.args.get("joins", ())):
                _count(clause, inside, aliases)
            self._references[id(select)] = max(aliases.values(), default=1)
        return self._references[id(select)]

    def _sources(self, select: exp.Select) -> Iterator[exp.Select]:
        """The queries below this one, those that it names included."""
        for table in select.find_all(exp.Table):
            if (body := self._bodies.get(table.name.lower())) is not None:
                yield from body.find_all(exp.Select)
        yield from (inner for inner in select.find_all(exp.Select) if inner is not select)


def _parts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The node and all below it, except WITH queries, which count where they are named."""
    return (part for part in node.walk(prune=lambda part: isinstance(part, exp.With)))


def _tables(node: exp.Expr) -> Iterator[exp.Table]:
    return (part for part in _parts(node) if isinstance(part, exp.Table))


def _is_in_expression(part: exp.Expr) -> bool:
    """Whether this is a query in a condition or for a value, where Spark makes it a join."""
    if not isinstance(part, exp.Select):
        return False
    above = part.parent
    while isinstance(above, exp.Subquery | exp.Paren | exp.SetOperation):
        above = above.parent
    return above is not None and not isinstance(above, exp.From | exp.Join | exp.CTE)


def _count(node: exp.Expr, inside: int, aliases: dict[str, int]) -> int:
    names = (column.name.lower() for column in node.find_all(exp.Column))
    count = sum(max(inside, aliases.get(name, 1)) for name in names)
    if count > MOST_REFERENCES:
        raise QuestionError(
            f"refers to columns more than {MOST_REFERENCES:,} times, with aliases written in full"
        )
    return max(count, inside)
