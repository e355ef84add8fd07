"""Values as people read them, by kind: exact, whatever their size."""

from datetime import date, datetime
from decimal import Decimal

import pytest

from kopitiam.contracts.tables import Kind
from kopitiam.questions.definitions import AnswerColumn
from kopitiam.results.cells import cell_text


@pytest.mark.parametrize(
    ("kind", "role", "value", "text"),
    [
        (Kind.MONEY, "measure", Decimal("6415.4412"), "RM 6,415.4412"),
        (Kind.MONEY, "key", Decimal("75"), "RM 75.00"),
        (Kind.MONEY, "measure", Decimal("-0.5000"), "-RM 0.50"),
        (
            Kind.MONEY,
            "measure",
            Decimal("9999999999999999999999999999999999.9999"),
            "RM 9,999,999,999,999,999,999,999,999,999,999,999.9999",
        ),
        (Kind.NUMBER, "measure", Decimal("2.0000"), "2.0"),
        (Kind.NUMBER, "measure", Decimal("1234.3333"), "1,234.3333"),
        (Kind.COUNT, "measure", 1009, "1,009"),
        (Kind.COUNT, "key", 2024, "2024"),
        (Kind.COUNT, "rank", 1, "1"),
        (Kind.ID, "key", 1234567, "1234567"),
        (Kind.DATE, "attribute", date(1990, 1, 1), "1990-01-01"),
        (Kind.INSTANT, "key", datetime(2024, 1, 31, 22, 59, 59), "2024-01-31 22:59:59"),
        (Kind.BOOLEAN, "key", True, "yes"),
        (Kind.BOOLEAN, "key", False, "no"),
        (Kind.TEXT, "attribute", "North", "North"),
        (Kind.DATE, "attribute", None, "empty"),
        (Kind.MONEY, "measure", None, "empty"),
    ],
)
def test_every_kind_has_its_text(kind, role, value, text):
    assert cell_text(AnswerColumn("c", kind, role), value) == text
