"""Keys of plans: equal exactly if the partials of the same rows are."""

from kopitiam.contracts.parameters import Parameters
from kopitiam.questions.catalog import read_json
from kopitiam.questions.plans import PartialPlan
from kopitiam.questions.question_set import QuestionSet

DEFAULT = Parameters()
OTHERS = {
    "years": Parameters(2023, 2025),
    "hours": Parameters(opening="07:00:00"),
    "amount": Parameters(min_amount="80"),
    "top": Parameters(top=9),
}
USED = {"1": {"years", "hours", "amount"}, "2_1": {"years"}, "3": {"years", "hours"}, "4": {"years"}}


def plans(parameters: Parameters = DEFAULT) -> dict[str, PartialPlan]:
    return {plan.name: plan for plan in QuestionSet.of_catalog(parameters).partials}


def own_key(**changes: object) -> str:
    definition = {
        "name": "mine",
        "title": "Mine",
        "from": "transactions",
        "where": ["@year", "final_amount > 10", "user_id is not null"],
        "by": {"store_id": "store_id"},
        "measure": {"n": "count(*)"},
        "columns": ["store_id", "n"],
    }
    (plan,) = QuestionSet.select(DEFAULT, read_json([definition | changes])).partials
    return plan.key(DEFAULT)


def test_a_key_depends_on_the_parameters_that_its_conditions_use():
    for name, plan in plans().items():
        changed = {other for other, parameters in OTHERS.items() if plan.key(parameters) != plan.key(DEFAULT)}
        assert changed == USED[name], name


def test_the_keys_of_the_catalog_differ_and_are_the_same_in_every_process():
    keys = {plan.key(DEFAULT) for plan in plans().values()}
    assert len(keys) == len(plans())
    assert keys == {plan.key(Parameters(min_amount="75.00")) for plan in plans().values()}


def test_names_titles_columns_ranks_and_the_order_of_conditions_do_not_matter():
    key = own_key()
    assert key == own_key(name="another", title="Another", columns=["n"])
    assert key == own_key(where=["user_id is not null", "final_amount > 10", "@year"])
    assert key == own_key(rank={"by": "n", "top": 3})


def test_rows_values_and_aggregates_matter():
    others = [
        own_key(where=["@year", "final_amount > 11", "user_id is not null"]),
        own_key(by={"store_id": "store_id", "user_id": "user_id"}, columns=["n"]),
        own_key(measure={"n": "sum(final_amount)"}),
        own_key(measure={"n": "count(user_id)"}),
    ]
    assert len({own_key(), *others}) == 5
