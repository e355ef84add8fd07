"""Which rows the filters let through, to the second and to the ten-thousandth of a ringgit."""

from collections import Counter

from kopitiam.contracts.questions import Questions
from kopitiam.pipeline.stages.filters import filter_amount, filter_hour, filter_year


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
        "1970-01-01 00:00:00",
        "2023-12-31 23:59:59",
        "2024-01-01 00:00:00",
        "2024-02-29 12:00:00",
        "2024-12-31 23:59:59",
        "2025-01-01 00:00:00",
        "2025-12-31 23:59:59",
        "2026-01-01 00:00:00",
    )
    kept = collected(
        {
            "both": ids(sales.transform(filter_year(Questions()))),
            "first": ids(sales.transform(filter_year(Questions(last_year=2024)))),
            "second": ids(sales.transform(filter_year(Questions(first_year=2025)))),
            "none": ids(sales.transform(filter_year(Questions(first_year=1999, last_year=2001)))),
        }
    )
    in_2024 = rows("2024-01-01 00:00:00", "2024-02-29 12:00:00", "2024-12-31 23:59:59")
    in_2025 = rows("2025-01-01 00:00:00", "2025-12-31 23:59:59")
    assert kept == {"both": in_2024 + in_2025, "first": in_2024, "second": in_2025, "none": Counter()}


def test_items_are_filtered_by_their_own_time(table, collected):
    items = table(
        "transaction_items",
        [(1, 1, "6", "2023-12-31 23:59:59"), (2, 1, "6", "2024-01-01 00:00:00")],
    )
    kept = collected({"items": items.transform(filter_year(Questions())).select("item_id")})
    assert kept["items"] == rows(2)


def test_opening_and_closing_second_are_both_open(table, collected):
    days = ("2024-01-01", "2024-02-29", "2025-07-01", "1969-12-31")
    clocks = ("00:00:00", "05:59:59", "06:00:00", "12:30:00", "22:59:59", "23:00:00", "23:00:01", "23:59:59")
    sales = sales_at(table, *(f"{day} {clock}" for day in days for clock in clocks))
    kept = collected(
        {
            "default": ids(sales.transform(filter_hour(Questions()))),
            "one second": ids(
                sales.transform(filter_hour(Questions(opening="23:00:01", closing="23:00:01")))
            ),
            "all day": ids(sales.transform(filter_hour(Questions(opening="00:00:00", closing="23:59:59")))),
        }
    )
    open_at = ("06:00:00", "12:30:00", "22:59:59", "23:00:00")
    assert kept["default"] == rows(*(f"{day} {clock}" for day in days for clock in open_at))
    assert kept["one second"] == rows(*(f"{day} 23:00:01" for day in days))
    assert kept["all day"] == rows(*(f"{day} {clock}" for day in days for clock in clocks))


def test_the_least_amount_is_large_enough(table, collected):
    sales = sales_of(
        table, "-75", "0", "60.4999", "60.5", "74.9999", "75", "75.0001", "75.075", "99999999999999.9999"
    )
    kept = collected(
        {
            "75": ids(sales.transform(filter_amount(Questions()))),
            "60.5": ids(sales.transform(filter_amount(Questions(min_amount="60.5")))),
            "-75.0001": ids(sales.transform(filter_amount(Questions(min_amount="-75.0001")))),
        }
    )
    large = rows("75", "75.0001", "75.075", "99999999999999.9999")
    assert kept["75"] == large
    assert kept["60.5"] == large + rows("60.5", "74.9999")
    assert kept["-75.0001"] == large + rows("-75", "0", "60.4999", "60.5", "74.9999")


def test_a_row_that_is_there_twice_stays_twice(table, collected):
    sales = sales_at(table, "2024-01-01 06:00:00", "2024-01-01 06:00:00")
    asked = Questions()
    kept = sales.transform(filter_year(asked)).transform(filter_hour(asked)).transform(filter_amount(asked))
    assert collected({"kept": ids(kept)})["kept"] == Counter({("2024-01-01 06:00:00",): 2})
