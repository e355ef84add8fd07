"""How many rows each month gets."""

from itertools import pairwise

import pytest

from kopitiam.synthetic.months import plan


@pytest.mark.parametrize("scale", [0.0001, 0.003, 0.1, 1, 2.5])
def test_totals_are_exact_to_scale(scale: float) -> None:
    months = plan(scale)

    assert sum(month.transactions for month in months) == round(14_600_000 * scale)
    assert sum(month.items for month in months) == round(29_000_000 * scale)
    assert sum(month.users for month in months) == round(2_200_000 * scale)


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e-5, 0.0001])
def test_every_month_has_rows_at_the_smallest_scales(scale: float) -> None:
    for month in plan(scale):
        assert month.users >= 1
        assert 1 <= month.transactions <= month.items <= 4 * month.transactions


def test_transactions_are_about_as_many_in_every_month() -> None:
    transactions = [month.transactions for month in plan(1)]

    assert min(transactions) > 0.9 * max(transactions)


def test_registrations_grow_month_by_month_from_the_real_beginning() -> None:
    users = [month.users for month in plan(1)]

    assert users[0] == pytest.approx(580, rel=0.02)
    assert users[6] == pytest.approx(11_576, rel=0.05)
    assert all(later >= earlier - 1 for earlier, later in pairwise(users))


def test_user_ids_of_the_months_follow_each_other() -> None:
    months = plan(0.01)

    assert months[0].users_before == 0
    for month, following in pairwise(months):
        assert following.users_before == month.users_before + month.users
