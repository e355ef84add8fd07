"""Which rows pass the filters, to the second and to the ten-thousandth of a ringgit."""

from collections import Counter

from kopitiam.contracts.parameters import Parameters
from kopitiam.pipeline.compiler.partials import filtered
from kopitiam.questions.parsing import Scope, parse


def filter_by(condition, parameters=None):
    return filtered(frozenset({condition}), parameters or Parameters())


def sales_at(table, *times):
    """Sales whose ids are their times."""
    return table("transactions", [(time, 1, None, "80", time) for time in times])


def sales_of(table, *amounts):
    return table("transactions", [(amount, 1, None, amount, "2024-03-01 12:00:00") for amount in amounts])


def ids(kept):
    return kept.select("transaction_id")


def rows(*values):
    return Counter((value,) for value in values)


def test_years_begin_and_end_at_midnight_both_inclusive(table, collected):
    sales = sales_at(
        table,
        "0001-01-01 00:00:00",
        "1970-01-01 00:00:00",
        "2023-12-31 23:59:59",
        "2024-01-01 00:00:00",
        "2024-02-29 12:00:00",
        "2024-12-31 23:59:59",
        "2025-01-01 00:00:00",
        "2025-12-31 23:59:59",
        "2026-01-01 00:00:00",
    )
    parameters_by_name = {
        "both": Parameters(),
        "first": Parameters(last_year=2024),
        "second": Parameters(first_year=2025),
        "none": Parameters(first_year=1999, last_year=2001),
        "long ago": Parameters(first_year=1, last_year=1),
    }
    kept = collected(
        {
            name: ids(sales.transform(filter_by("@year", parameters)))
            for name, parameters in parameters_by_name.items()
        }
    )
    in_2024 = rows("2024-01-01 00:00:00", "2024-02-29 12:00:00", "2024-12-31 23:59:59")
    in_2025 = rows("2025-01-01 00:00:00", "2025-12-31 23:59:59")
    assert kept == {
        "both": in_2024 + in_2025,
        "first": in_2024,
        "second": in_2025,
        "none": Counter(),
        "long ago": rows("0001-01-01 00:00:00"),
    }


def test_items_are_filtered_by_their_own_time(table, collected):
    items = table(
        "transaction_items",
        [(1, 1, "6", "2023-12-31 23:59:59"), (2, 1, "6", "2024-01-01 00:00:00")],
    )
    kept = collected({"items": items.transform(filter_by("@year")).select("item_id")})
    assert kept["items"] == rows(2)


def test_opening_and_closing_second_are_both_inclusive(table, collected):
    days = ("2024-01-01", "2024-02-29", "2025-07-01", "1969-12-31")
    clocks = ("00:00:00", "05:59:59", "06:00:00", "12:30:00", "22:59:59", "23:00:00", "23:00:01", "23:59:59")
    sales = sales_at(table, *(f"{day} {clock}" for day in days for clock in clocks))
    parameters_by_name = {
        "default": Parameters(),
        "one second": Parameters(opening="23:00:01", closing="23:00:01"),
        "all day": Parameters(opening="00:00:00", closing="23:59:59"),
    }
    kept = collected(
        {
            name: ids(sales.transform(filter_by("@hour", parameters)))
            for name, parameters in parameters_by_name.items()
        }
    )
    open_at = ("06:00:00", "12:30:00", "22:59:59", "23:00:00")
    assert kept["default"] == rows(*(f"{day} {clock}" for day in days for clock in open_at))
    assert kept["one second"] == rows(*(f"{day} 23:00:01" for day in days))
    assert kept["all day"] == rows(*(f"{day} {clock}" for day in days for clock in clocks))


def test_the_minimum_amount_is_inclusive(table, collected):
    sales = sales_of(
        table, "-75", "0", "60.4999", "60.5", "74.9999", "75", "75.0001", "75.075", "99999999999999.9999"
    )
    least = ("75", "60.5", "-75.0001")
    kept = collected(
        {
            amount: ids(sales.transform(filter_by("@amount", Parameters(min_amount=amount))))
            for amount in least
        }
    )
    large = rows("75", "75.0001", "75.075", "99999999999999.9999")
    assert kept["75"] == large
    assert kept["60.5"] == large + rows("60.5", "74.9999")
    assert kept["-75.0001"] == large + rows("-75", "0", "60.4999", "60.5", "74.9999")


def test_a_duplicate_row_counts_twice(table, collected):
    sales = sales_at(table, "2024-01-01 06:00:00", "2024-01-01 06:00:00")
    kept = sales.transform(filtered(frozenset({"@year", "@hour", "@amount"}), Parameters()))
    assert collected({"kept": ids(kept)})["kept"] == Counter({("2024-01-01 06:00:00",): 2})


def test_conditions_on_years_and_days_are_ranges_that_parquet_can_skip_by(table, collected):
    times = ("2023-12-31 23:59:59", "2024-01-01 00:00:00", "2024-12-31 23:59:59", "2025-01-01 00:00:00")
    sales = sales_at(table, *times)
    texts = {
        "year(created_at) = 2024": times[1:3],
        "year(created_at) <> 2024": (times[0], times[3]),
        "year(created_at) < 2024": times[:1],
        "year(created_at) <= 2024": times[:3],
        "year(created_at) > 2024": times[3:],
        "year(created_at) >= 2024": times[1:],
        "date(created_at) = '2024-12-31'": times[2:3],
        "date(created_at) >= '2024-12-31'": times[2:],
        "year(created_at) < 99999": times,  # after the year 9999
    }
    scope = Scope("transactions")
    frames = {text: sales.transform(filter_by(parse(text, scope))) for text in texts}
    kept = collected({text: ids(frame) for text, frame in frames.items()})
    assert kept == {text: rows(*those) for text, those in texts.items()}
    plan = frames["year(created_at) = 2024"]._jdf.queryExecution().optimizedPlan().toString()
    assert "year(" not in plan
