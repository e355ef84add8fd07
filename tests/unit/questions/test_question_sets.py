"""Sets of questions: selection by name, names of stages and columns, JSON of this and of earlier versions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kopitiam.contracts.errors import QuestionError, RunFailed
from kopitiam.contracts.parameters import Parameters
from kopitiam.contracts.tables import Kind
from kopitiam.questions import question_set
from kopitiam.questions.catalog import builtin, read_json
from kopitiam.questions.question_set import QuestionSet

OWN: dict[str, Any] = {
    "name": "mine",
    "title": "Mine",
    "from": "transactions",
    "where": ["final_amount > 10"],
    "by": {"store_id": "store_id", "hour": "hour(created_at)"},
    "measure": {"revenue": "sum(final_amount)", "purchases": "count(*)"},
    "columns": ["store_name", "hour", "revenue"],
}


def own(**changes: Any) -> Any:
    return read_json([{key: value for key, value in (OWN | changes).items() if value is not None}])[0]


def select(*questions: Any, names: list[str] | None = None) -> QuestionSet:
    return QuestionSet.select(Parameters(), questions, names)


def test_own_questions_are_selected_unless_names_are_given() -> None:
    assert list(select().by_name) == list(builtin())
    assert list(select(own()).by_name) == ["mine"]
    assert list(select(own(), names=["3", "mine", "3"]).by_name) == ["3", "mine"]


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ([], "ask: no question is named"),
        (["5"], "ask: there is no question '5'; there are 1, 2_1, 2_2, 3, 4, mine"),
        (["min"], "did you mean mine?"),
        (["x" * 5000], "there is no question 'xxx"),
    ],
)
def test_an_unknown_name_is_refused(names: list[str], reason: str) -> None:
    with pytest.raises(QuestionError) as refused:
        select(own(), names=names)
    assert reason in str(refused.value)
    assert len(str(refused.value)) <= 400


def test_json_keeps_the_order_of_keys_and_measures() -> None:
    selected = select(own(), names=["mine", "1"])
    for text in (json.dumps(selected.to_dict()), json.dumps(selected.to_dict(), sort_keys=True)):
        restored = QuestionSet.from_dict(json.loads(text))
        assert restored == selected
        assert [key.name for key in restored.by_name["mine"].keys] == ["store_id", "hour"]
        assert [measure.name for measure in restored.by_name["mine"].measures] == ["revenue", "purchases"]


def test_a_request_for_the_catalog_has_parameters_only() -> None:
    assert QuestionSet.of_catalog().to_request() == Parameters().to_dict()


def test_a_set_is_restored_from_its_request() -> None:
    for selected in (QuestionSet.of_catalog(), select(own(), names=["3", "mine"])):
        assert QuestionSet.from_dict(selected.to_request()) == selected


def test_a_stored_run_keeps_the_catalog_that_it_was_opened_with(monkeypatch) -> None:
    kept = QuestionSet.of_catalog().to_dict()
    changed = {name: replace(question, title="Changed") for name, question in builtin().items()}
    monkeypatch.setattr("kopitiam.questions.question_set.builtin", lambda: changed)
    question_set._from_text.cache_clear()
    assert all(question.title != "Changed" for question in QuestionSet.from_dict(kept).questions)
    assert all(question.is_builtin for question in QuestionSet.from_dict(kept).questions)


def test_a_run_of_another_version_fails_with_the_reason() -> None:
    kept = {
        **Parameters().to_dict(),
        "ask": ["tomorrow"],
        "definitions": [{**OWN, "name": "tomorrow", "pivot": 1}],
    }
    with pytest.raises(
        RunFailed, match=r"this version cannot read the questions of the run: .*pivot: is not a known key"
    ):
        QuestionSet.of_run(kept)


@pytest.mark.parametrize(
    "stages",
    [
        {"aggregate": "agg_tpv"},  # another partial's
        {"aggregate": "sum_tpv"},
        {"rank": "agg_mine"},
        {"rank": "agg_tpv"},
        {"join": ["sum_tpv"]},
        {"join": ["server_results"]},
        {"rank": "server_results"},
        {"aggregate": "server_results"},
    ],
)
def test_two_stages_with_one_name_are_refused(stages: dict[str, Any]) -> None:
    with pytest.raises(QuestionError, match=r"question mine, stages: .* is the name of another stage"):
        select(own(stages=stages), names=["3", "mine"])


@pytest.mark.parametrize("stage", ["filter_year", "filter_mine", "check_stores", "check_x"])
def test_reserved_prefixes_of_stages_are_refused(stage: str) -> None:
    for stages in ({"aggregate": stage}, {"rank": stage}, {"join": [stage]}):
        with pytest.raises(QuestionError, match=f"stages: {stage}: filter_ and check_ are reserved prefixes"):
            own(stages=stages)


def test_questions_may_share_the_stages_behind_the_barrier() -> None:
    assert select(names=["2_1", "2_2"]).stages.behind_barrier == (
        "max_products",
        "join_items",
        "server_results",
    )


@pytest.mark.parametrize("name", ["year", "hour", "amount"])
def test_a_question_with_the_name_of_a_filter_is_refused(name: str) -> None:
    with pytest.raises(QuestionError, match=f"name: {name} is the name of a filter; choose another"):
        own(name=name)


@pytest.mark.parametrize("name", ["summary", "rejected", "query_1", "results"])
def test_a_question_with_the_name_of_another_result_file_is_refused(name: str) -> None:
    with pytest.raises(QuestionError, match=f"name: {name} is the name of another result file"):
        own(name=name)


@pytest.mark.parametrize(
    "changes",
    [
        {"measure": {"store_name": "sum(final_amount)"}, "columns": ["stores.store_name"]},
        {"measure": {"hour": "sum(final_amount)"}, "columns": ["hour"]},
        {"measure": {"store_is_matched": "count(*)"}, "columns": ["store_name"]},
        {"by": {"store": "store_id", "store_id": "user_id"}, "columns": ["store_name", "birthdate"]},
    ],
)
def test_two_columns_with_one_name_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(QuestionError, match=r"two columns are named \w+; rename the key or the measure"):
        own(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"columns": ["rank"]}, "rank is named, but nothing is ranked; add rank"),
        ({"rank": {"by": "revenue", "top": 1}, "columns": ["rank"]}, "rank is always 1, since top is 1"),
        ({"rank": {"by": "revenue", "top": 1}, "order": ["rank"]}, "rank is always 1, since top is 1"),
        ({"rank": {"by": ["revenue"], "top": 1}}, r"by = \['revenue'\]: expected one of revenue"),
        ({"rank": {"by": "revenue", "top": 10**9}}, 'expected 1 to 100,000, or "@top"'),
        (
            {"columns": ["transaction_items.quantity"]},
            "both facts, which cannot be joined; keep both in a data",
        ),
        ({"columns": ["store_nam"]}, "an attribute of a key; did you mean store_name"),
        ({"by": {"all": "1"}}, "by.all: names no column, so it is the same for every row"),
        ({"where": ["1 = 1"]}, "where: names no column"),
        ({"measure": {"two": "1 + 1"}}, "measure.two: a measure is made of sum"),
        ({"measure": {"x": "count(distinct 1)"}}, "names no column"),
        ({"measure": {"x": "sum(final_amount) * sum(final_amount - 1)"}}, "money times money"),
        ({"measure": {"x": "count(*) * count(*) * sum(final_amount) * 100000"}}, "digits; at most 38 are"),
        ({"where": ["final_amount >= 99999999999999999"]}, "'99999999999999999' is too large"),
        ({"where": ["final_amount in ()"]}, "IN has 0 values"),
        ({"where": ["created_at > '2024-W05-1'"]}, "is not a time like"),
        ({"where": ["date(created_at) > '2024-W05-1'"]}, "is not a date like"),
        ({"by": {"month": "month(date(created_at))"}}, "date: functions of time cannot be nested"),
        ({"where": ["transaction_id = '\x00'"]}, "must not have the character NUL"),
        (
            {"by": {"large": "final_amount * 10"}},
            "by.large: can have 20 digits; rows are grouped by values of",
        ),
        ({"measure": {"x": "count(distinct final_amount * 10)"}}, "measure.x: can have 20 digits"),
        (
            {"by": None, "rank": {"by": "revenue", "within": ["x"], "top": 1}, "columns": ["revenue"]},
            "there is no key",
        ),
        (
            {"by": None, "measure": None, "columns": ["transactions.store_id"]},
            "'transactions.store_id' is not a key, a measure or an attribute of a key; write store_id",
        ),
        (
            {"chart": {"mark": "histogram", "x": "count", "y": "revenue"}},
            "chart: x = 'count': expected one of store_id, hour, revenue, purchases, store_name",
        ),
        ({"title": "\ud800"}, "title: expected texts"),
        ({"columns": None}, r'columns: is missing; write columns = \["…"\]'),
        ({"wher": ["@year"]}, "wher: is not a known key; expected some of .*did you mean where"),
        ({"where": ["@yaer"]}, "'@yaer' is not a filter; expected one of @year, .*; did you mean @year"),
    ],
)
def test_invalid_definitions_are_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        own(**changes)


def test_the_length_of_definitions_is_bounded() -> None:
    with pytest.raises(QuestionError, match=r"the definition has 1\d,\d{3} characters; at most 10,000"):
        own(where=[f"final_amount in ({', '.join(map(str, range(300)))}, {n})" for n in range(10)])
    long = [f"final_amount in ({', '.join(map(str, range(300)))}, {n})" for n in range(6)]
    definitions = [OWN | {"name": f"mine_{n}", "where": long} for n in range(30)]
    with pytest.raises(QuestionError, match=r"definitions: .* characters; at most 200,000"):
        read_json(definitions)
    with pytest.raises(QuestionError, match="definitions: 101 questions; at most 100"):
        read_json([OWN | {"name": f"mine_{n}"} for n in range(101)])


def test_a_list_has_the_ids_of_shown_attributes_as_keys() -> None:
    [listed] = read_json(
        [{"name": "listed", "title": "Rows", "from": "transactions", "columns": ["transaction_id", "city"]}]
    )
    assert [key.name for key in listed.keys] == ["transaction_id", "store_id"]
    assert listed.sort_columns == ("transaction_id", "store_id")
    assert [(column.name, column.kind) for column in listed.answer_columns] == [
        ("transaction_id", Kind.TEXT),
        ("store_id", Kind.ID),
        ("city", Kind.TEXT),
        ("store_is_matched", Kind.BOOLEAN),
    ]


# What registries of earlier versions hold. A new form adds an entry; no entry is ever changed.
KEPT: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("kept_by_earlier_versions.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("entry", KEPT, ids=lambda entry: entry["form"])
def test_a_run_of_an_earlier_version_keeps_its_partials_stages_tables_and_answers(
    entry: dict[str, Any],
) -> None:
    stored = QuestionSet.of_run(entry["kept"])
    tables = {name: [column.name for column in table.columns] for name, table in stored.tables.items()}
    answers = {
        q.name: [q.file_name("csv"), *(column.name for column in q.answer_columns)] for q in stored.questions
    }
    assert [partial.name for partial in stored.partials] == entry["partials"]
    assert list(stored.stages.roles) == entry["stages"]
    assert tables == entry["tables"]
    assert answers == entry["answers"]
