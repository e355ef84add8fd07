"""Any text is read as a definition, or refused quickly in one line of bounded length."""

import json
import string
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kopitiam.contracts.errors import QuestionError
from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import read_json, read_toml
from kopitiam.questions.explanations import explain
from kopitiam.questions.grammar import MOST_CHARACTERS
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.parsing import Scope, parse
from kopitiam.questions.question_set import QuestionSet
from kopitiam.verification.expressions import to_sql
from sampling import IS_FULL

pytestmark = pytest.mark.slow

EXAMPLES = 3_000 if IS_FULL else 120
MOST_SECONDS = 20.0  # of CPU: a hundredth is enough, and exponential growth needs minutes
MOST_LINE = 600
SCOPES = [
    Scope("transactions"),
    Scope("transactions", may_use_attributes=True),
    Scope("transactions", is_measure=True),
    Scope("transaction_items", is_measure=True),
]
_SQL = """
sum count min max avg ratio distinct year month hour date iso_week case when then else end and or not in
between is null select from over filter cast as interval exists like group with lambda array any timestamp
( ) [ ] { } , . ; : :: -> => + - * / % || = <> < <= > >= ! ~ @ # $ ? ' " ` \\ -- /* */ {{ {%
1 0 1.5 .5 1e9 0x1F 99999999999999999 1_000 '2024-01-31' '' 'it''s' @year N'x' b'1' true false
"""
WORDS = [*_SQL.split(), *(name for table in LAYOUT.values() for name in (table.name, *table.by_name))]
WORDS += ["\x00", "\ud800", "١", "é", "\u202e", "𝟙", "\n", "\t"]
soup = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
glued = st.lists(st.sampled_from(WORDS), max_size=60).map("".join)
texts = st.text(max_size=200) | soup | glued | st.text(string.printable, max_size=200)
thoroughly = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def refusal(do: Any) -> str | None:
    """The text of the refusal, None if there is none; other exceptions than QuestionError fail the test."""
    began = time.process_time()
    try:
        do()
        words = None
    except QuestionError as error:
        words = str(error)
    assert time.process_time() - began < MOST_SECONDS
    if words is not None:
        assert words.isprintable()
        assert len(words) <= MOST_LINE
    return words


@pytest.mark.parametrize("scope", SCOPES)
@thoroughly
@given(text=texts)
def test_any_text_is_parsed_or_refused(scope: Scope, text: str) -> None:
    refusal(lambda: parse(text, scope))


_REPEATED = """
(|[|{|not |- |+|~|case when |year(|a.|a::|x->|if(|cast(1 as struct<a |final_amount + |'a'|interval |sum(
user_id is null and |count(|count(distinct |select |with a as (|user_id in (|{{|{%|/*|--|\\|'|"|`|$$
user_id between |array[|exists(|case when user_id between case when |date(|iso_week(|,|;|(select |null(
a = any(|(a, |timestamp(
date |case |date(case when |final_amount * |- final_amount |not user_id = |(1, |in (|is
case when user_id is null then |
"""
NESTED = list(filter(None, _REPEATED.replace("\n", "|").split("|")))
NARROW = st.lists(
    st.sampled_from(
        """sum( count( min( max( avg( ratio( distinct year( date( iso_week( case when then else end and or
        not in ( ) between is null , . + - * = <> < >= 1 1.5 'x' '2024-01-31' date timestamp final_amount
        user_id created_at stores.city true""".split()  # noqa: SIM905
    ),
    max_size=40,
).map(" ".join)


@pytest.mark.parametrize("scope", SCOPES)
@thoroughly
@given(text=NARROW)
def test_any_sequence_of_supported_words_is_parsed_or_refused(scope: Scope, text: str) -> None:
    refusal(lambda: parse(text, scope))


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("text", NESTED)
def test_repeated_and_nested_forms_are_parsed_or_refused_quickly(scope: Scope, text: str) -> None:
    for closing in ("", ")", " end", " then 1 end", "]"):
        times = MOST_CHARACTERS // (len(text) + len(closing)) - 10
        for count in (19, 21, 60, times):
            written = text * count + "final_amount" + closing * count
            refusal(lambda written=written: parse(written[:MOST_CHARACTERS], scope))


def test_nested_betweens_are_bounded() -> None:
    text = "final_amount"
    for _ in range(18):
        text = f"case when {text} between 1 and 2 then 1 end"
    words = refusal(lambda: parse(f"{text} = 1", SCOPES[0]))
    assert words is not None
    assert "is too long" in words


def test_parsing_does_not_depend_on_the_depth_of_the_stack() -> None:
    text = "(" * 20 + "final_amount" + ")" * 20 + " > 1"

    def deeply(levels: int) -> Any:
        return parse(text, SCOPES[0]) if levels == 0 else deeply(levels - 1)

    assert deeply(300) == parse(text, SCOPES[0])


longest = [
    " + ".join(["hour(created_at)"] * 79),
    " and ".join(["user_id > 1"] * 79),
    f"final_amount in ({', '.join(['1'] * 600)})",
]


@pytest.mark.parametrize("text", longest)
def test_the_longest_expressions_can_be_hashed_and_compiled_to_sql_on_a_deep_stack(text: str) -> None:
    expression = parse(text, SCOPES[1])

    def deeply(levels: int) -> Any:
        if levels:
            return deeply(levels - 1)
        return hash(expression), to_sql(expression, lambda column: column.name)

    assert deeply(300)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=10) | st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
SOUND: dict[str, Any] = {
    "name": "mine",
    "title": "Mine",
    "from": "transactions",
    "where": ["@year"],
    "by": {"hour": "hour(created_at)", "store_id": "store_id"},
    "measure": {"revenue": "sum(final_amount)"},
    "rank": {"by": "revenue", "within": ["hour"], "top": 3},
    "columns": ["hour", "store_name", "rank", "revenue"],
    "order": ["hour"],
    "chart": {"mark": "bar", "x": "hour", "y": "revenue"},
    "stages": {"aggregate": "agg_mine", "rank": "rank_mine", "join": ["join_mine"]},
}


def ask(definition: Any) -> None:
    questions = read_json([definition])
    question_set = QuestionSet.select(Parameters(), questions)
    question_set.require_answerable()
    assert explain(questions[0])
    assert (
        QuestionSet.from_dict(json.loads(json.dumps(question_set.to_dict(), sort_keys=True))) == question_set
    )


def test_the_definition_that_the_tests_change_is_valid() -> None:
    ask(SOUND)


@thoroughly
@given(st.sampled_from(sorted(SOUND)), values)
def test_any_value_of_a_key_is_read_or_refused(key: str, value: Any) -> None:
    refusal(lambda: ask(SOUND | {key: value}))


@thoroughly
@given(st.sampled_from(["rank", "chart", "stages", "by", "measure"]), st.text(max_size=8), values)
def test_any_value_within_a_key_is_read_or_refused(key: str, name: str, value: Any) -> None:
    for inner in {name, *SOUND[key]}:
        refusal(lambda inner=inner: ask(SOUND | {key: SOUND[key] | {inner: value}}))


@thoroughly
@given(st.lists(st.sampled_from(sorted(SOUND)), max_size=4), st.dictionaries(texts, values, max_size=2))
def test_any_set_of_keys_is_read_or_refused(missing: list[str], more: dict[str, Any]) -> None:
    refusal(lambda: ask({key: value for key, value in SOUND.items() if key not in missing} | more))


TOML = """[[question]]|[question.by]|name = "mine"|title = "M"|from = "transactions"|a = 1|=|[|]]|by = {|}|#
columns = ["transaction_id"]|'''|a.b.c = 2024-01-01|where = [|\\u0000|"\\u0000" = 1|rank = {top = 1e9}
x = nan"""


@thoroughly
@given(
    st.lists(st.sampled_from(TOML.replace("\n", "|").split("|")) | st.text(max_size=20), max_size=12),
    st.sampled_from(["\n", " ", "\r\n"]),
)
def test_any_file_is_read_or_refused(parts: list[str], between: str) -> None:
    refusal(lambda: read_toml(between.join(parts), "mine.toml"))


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 5_000,
        "a = " + "{a=" * 5_000,
        "a = " + "1" * 5_000,
        "a" + ".a" * 5_000 + " = 1",
        "[[question]]\n'(((' = 1",
        '[[question]]\nname = "a"\n"\\\\Q[" = 1',
        "[[question]]\n" * 5_000,
        "#" * 300_000,
    ],
)
def test_a_hostile_file_is_refused(text: str) -> None:
    assert refusal(lambda: read_toml(text, "mine.toml"))


def test_a_deeply_nested_value_is_refused() -> None:
    value: Any = "x"
    for _ in range(3_000):
        value = [value]
    assert refusal(lambda: ask(SOUND | {"rank": value}))
    assert refusal(lambda: ask(SOUND | {"title": "\ud800"}))
    assert refusal(lambda: ask(SOUND | {"where": ["transaction_id = '\x00'"]}))
