"""Writes docs/questions.md from the catalog, the layout and the language.

    python -m tools.questions_page

Lists, bounds and refusals come from the code: a test fails when the page that is committed differs.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import MAX_TOP
from kopitiam.contracts.tables import MAX_TEXT_CHARACTERS, Kind
from kopitiam.questions import catalog, grammar, groups, operations, parsing, validation
from kopitiam.questions.catalog import builtin, read_toml
from kopitiam.questions.clauses import MARKS
from kopitiam.questions.definitions import FILTERS, Question
from kopitiam.questions.explanations import explain
from kopitiam.questions.layout import FACTS, LAYOUT, LayoutTable
from kopitiam.questions.parsing import Scope, parse

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "questions.md"
EXAMPLES = ROOT / "examples" / "questions.toml"

_EXAMPLE = """\
[[question]]
name    = "sales_by_hour"
title   = "Sales by hour of day and store"
from    = "transactions"
where   = ["@year", "@hour", "final_amount >= 10"]
by      = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)" }
rank    = { by = "revenue", within = ["hour"], top = 3 }
columns = ["hour", "store_name", "revenue", "purchases"]
order   = ["hour", "store_name"]
chart   = { mark = "bar", x = "hour", y = "revenue", color = "store_name" }
"""
_INTRODUCTION = """\
# Questions

A question is a definition: which rows count, how they are grouped, what is measured, how groups are ranked, and what the
answer shows. The four questions of the catalog are written this way, and so are yours. Nothing else has to be changed or
installed to ask one.

This page is written by `python -m tools.questions_page` from the program itself.

## Ask your own
```
$ kopi questions mine.toml                            # what each question does, or the first flaw with its line
$ kopi analyze exports --questions mine.toml          # all questions of the file
$ kopi analyze exports --questions mine.toml --ask sales_by_hour --ask 3       # these two, one of them from the catalog
$ kopi submit exports --questions mine.toml --out answers                      # the same at a service
$ kopi verify exports answers                         # checks them with another engine
```
Without `--questions` and `--ask` the catalog is asked. Only the tables and columns that the questions need are read and sent.
[`examples/questions.toml`](../examples/questions.toml) has twelve questions to begin with.

## An example
```toml
{example}```
`kopi questions` says of it:

{sentences}

## The keys of a definition
| key | what it says |
|---|---|
{keys}

Names of keys, measures and questions are a small letter, then up to 39 of `a` to `z`, `0` to `9` and `_`. The names `rank`, `run` and `count`
are taken. In JSON, `by` and `measure` may also be lists of pairs, `[["hour", "hour(created_at)"], …]`: their order counts, and
programs may change the order of an object.
"""
_KEYS: dict[str, str] = {
    "name": "The name of the question. Its answer is in `results_<name>.csv`, and at `…/results/<name>.csv` of the service.",
    "title": f"One line of at most {validation.MOST_TITLE} characters, for people.",
    "from": f"The table whose rows are counted: {' or '.join(f'`{fact}`' for fact in FACTS)}.",
    "where": "Conditions that all must hold: expressions, and the named filters "
    + ", ".join(f"`{name}`" for name in FILTERS)
    + ", which are the years, the hours and the least amount of the run. Without it every row counts.",
    "by": "The keys that rows are grouped by, each a name and an expression. They may use attributes, such as "
    "`stores.city`. Without it all rows are one group.",
    "measure": "What is measured of each group, each a name and an expression of aggregates. Without it the answer "
    "lists rows.",
    "rank": "`by`: a measure. `within`: keys; each combination of them is ranked by itself. `top`: how many places are kept, "
    f'1 to {MAX_TOP:,}, or `"@top"` for the number of the run. `order`: `"desc"`, the largest first, unless it is '
    '`"asc"`. Of equals the lowest other keys come first.',
    "columns": "The columns of the CSV file: keys, measures, `rank`, and attributes of a table whose id is a key, such as "
    "`store_name` where `store_id` is one. JSON, Parquet and xlsx have all keys, measures, the rank, and what did not "
    "match besides.",
    "order": "The columns that rows are sorted by, ascending, empty ones first; then by the keys. Without it: by the keys.",
    "chart": f"`mark`: {', '.join(f'`{mark}`' for mark in MARKS)}; `x`, `y`, `color`: columns. A heat map (`rect`) has its figures in "
    "`color`; of a histogram only `x` counts. Without it a chart is chosen that fits the columns.",
    "stages": "Names under which the work is seen in the status of a run: `aggregate`, `rank`, and a list `join` with one "
    "name for each table that is looked up. Without it they are made of the name.",
}
_LANGUAGE = """
## Expressions
Expressions have the spelling of SQL, and are a small part of it. They are typed before anything runs.

| | |
|---|---|
| columns | `final_amount`; in keys also attributes of what an id identifies: `users.birthdate` |
| constants | `12`, `12.5`, `'text'`, `true`, `false`, `date '2024-01-31'`, `timestamp '2024-01-31 22:59:59'`; a date or a time may be written as a text where it is compared with one |
| computing | `+`, `-`, `*` with counts and money |
| comparing | `=`, `<>`, `<`, `<=`, `>`, `>=`, `between … and …`, `in (…)`, `is null`, `is not null` |
| combining | `and`, `or`, `not`, `case when … then … else … end` |
| functions of time | {functions} |
| measures | {measures} |

There are no floats: `12.5` is a decimal number, `1e5` is refused. There is no division but `ratio(a, b)`.

| function | of `2024-01-31 22:59:59` |
|---|---|
{times}

| measure | what it is | how two partial results become one |
|---|---|---|
| `sum(x)` | the exact sum of counts or money; empty where no x is there | by adding |
| `count(*)`, `count(x)` | rows; rows in which x is there | by adding |
| `count(distinct x)` | how many values x has | every value is kept once |
| `min(x)`, `max(x)` | the least and the greatest value, of any kind | by comparing |
| `avg(x)` | `ratio(sum(x), count(x))` | sum and count, each by adding |
| `ratio(a, b)` | a divided by b, both exact, rounded half up to 4 decimals at the very end; empty where b is 0 | a and b, each as it is |

## Kinds
| kind | of what | in answers |
|---|---|---|
{kinds}
"""
_TIMES = {
    "year": "`2024`",
    "quarter": "`1`",
    "month": "`1`",
    "day": "`31`",
    "dayofweek": "`4`: Sunday is 1",
    "hour": "`22`",
    "minute": "`59`",
    "date": "`2024-01-31`",
    "year_month": "`2024-01`",
    "year_half": "`2024-H1`",
    "year_quarter": "`2024-Q1`",
    "iso_week": "`2024-W05`",
}
_KINDS = {
    Kind.TEXT: ("names and codes; sorted by their bytes in UTF-8", "as it is"),
    Kind.ID: ("whole numbers that identify, not negative; `17272.0` is 17272", "`17272`"),
    Kind.COUNT: ("whole numbers", "`3031`"),
    Kind.MONEY: ("decimal numbers of at most 4 decimals", "`75.0`, `75.075`"),
    Kind.INSTANT: ("points in time, to the second", "`2024-01-31 22:59:59`"),
    Kind.DATE: ("days", "`1988-09-25`"),
    Kind.BOOLEAN: ("conditions", "`true`, `false`"),
    Kind.NUMBER: ("ratios", "`0.3333`, `2.0`"),
}
_AFTER_TABLES = """
An id that its table lacks still shows: the id stands in place of the name, other attributes are empty, `…_is_matched` is `false`,
and the summary counts it. Of an id that its table lists twice, the smallest values count. Two facts are not joined.

## Limits
| | at most |
|---|---|
{limits}

Groups are counted as far as the definition and the years of the run tell: functions of time, conditions, and cases of constants. Ids,
texts and amounts are not counted. `questions.max_groups` in `kopitiam.toml` raises the bound. Sums and products are exact up to {widest}
digits; a run with larger figures fails with the reason. Keys, and values that are counted once, must fit into 64 bits: what could be
larger is refused.

## What is refused
| written | reason |
|---|---|
{refusals}
"""
_REFUSED: list[tuple[str, Scope]] = [
    ("final_amount > 1e5", Scope("transactions")),
    ("final_amount / 2 > 10", Scope("transactions")),
    ("amount > 10", Scope("transactions")),
    ("hours(created_at)", Scope("transactions", may_use_attributes=True)),
    ("stores.city = 'Ipoh'", Scope("transactions")),
    ("transaction_items.quantity > 1", Scope("transactions")),
    ("user_id in (select user_id from users)", Scope("transactions")),
    ("coalesce(user_id, 1) = 1", Scope("transactions")),
    ("transaction_id like 'a%'", Scope("transactions")),
    ("user_id = null", Scope("transactions")),
    ("user_id = 'x'", Scope("transactions")),
    ("final_amount::int > 3", Scope("transactions")),
    ("month(date(created_at))", Scope("transactions", may_use_attributes=True)),
    ("sum(final_amount) over ()", Scope("transactions", is_measure=True)),
    ("sum(final_amount) / count(*)", Scope("transactions", is_measure=True)),
    ("sum(final_amount * final_amount)", Scope("transactions", is_measure=True)),
    ("avg(final_amount) + 1", Scope("transactions", is_measure=True)),
    ("final_amount", Scope("transactions", is_measure=True)),
]


def page() -> str:
    """The whole page as Markdown."""
    [example] = read_toml(_EXAMPLE, "example")
    parts = [
        _INTRODUCTION.replace("{example}", _EXAMPLE)
        .replace("{sentences}", _bullets(explain(example)))
        .replace("{keys}", _rows((f"`{key}`", _KEYS[key]) for key in validation.KEYS)),
        _LANGUAGE.replace("{functions}", _words(grammar.FUNCTIONS))
        .replace("{measures}", f"{_words(grammar.MEASURE_FUNCTIONS)}; combined by `+`, `-`, `*`")
        .replace("{times}", _rows((f"`{name}(created_at)`", _TIMES[name]) for name in grammar.FUNCTIONS))
        .replace("{kinds}", _rows((kind.value, *_KINDS[kind]) for kind in Kind)),
        "\n## Tables and columns\nColumns with `?` may have empty cells.\n",
        *map(_table, LAYOUT.values()),
        _AFTER_TABLES.replace("{limits}", _rows(_limits()))
        .replace("{widest}", str(operations.WIDEST))
        .replace("{refusals}", _rows(_refusals())),
        "\n## The catalog\n",
        *(_told(question, f"Q{question.name.replace('_', '.')}") for question in builtin().values()),
        "\n## The twelve examples\n",
        *(_told(question, f"`{question.name}`") for question in _examples()),
    ]
    return "".join(parts)


def _examples() -> list[Question]:
    return read_toml(EXAMPLES.read_text(encoding="utf-8"), "examples/questions.toml")


def _table(table: LayoutTable) -> str:
    what = "a fact" if table.is_fact else f"attributes by `{table.key}`"
    columns = [f"`{c.name}` {c.kind.value}{'?' if c.is_optional else ''}" for c in table.columns]
    refers = [f"`{column}` → `{target}`" for column, target in table.references.items()]
    more = f"  \nIds: {', '.join(refers)}." if refers else ""
    return f"\n**`{table.name}`** ({what}): {', '.join(columns)}.{more}\n"


def _limits() -> Iterator[tuple[str, str]]:
    yield "questions in one run", f"{catalog.MOST_QUESTIONS:,}"
    yield (
        "characters of a definition; of all definitions of a run",
        (f"{validation.MOST_CHARACTERS:,}; {catalog.MOST_CHARACTERS:,}"),
    )
    for key, most in validation.MOST.items():
        yield f"entries of `{key}`", f"{most:,}"
    yield "characters of an expression", f"{grammar.MOST_CHARACTERS:,}"
    yield "parentheses and cases within each other", f"{grammar.MOST_LEVELS:,}"
    yield "operators in a row", f"{parsing.MOST_DEPTH:,}"
    yield "values of one `in (…)`", f"{operations.MOST_VALUES:,}"
    yield "characters of a text", f"{MAX_TEXT_CHARACTERS:,}"
    yield "digits of a whole number", f"{operations.MOST_DIGITS:,}"
    yield "places of a rank", f"{MAX_TOP:,}"
    yield "groups that keys can make", f"{groups.MAX_GROUPS:,}"


def _refusals() -> Iterator[tuple[str, str]]:
    for text, scope in _REFUSED:
        try:
            parse(text, scope)
        except QuestionError as error:
            yield f"`{text}`", str(error)
        else:
            raise AssertionError(f"{text} is not refused")


def _told(question: Question, name: str) -> str:
    return f"\n**{name}: {question.title}**\n\n{_bullets(explain(question))}\n"


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def _words(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
