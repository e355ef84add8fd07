"""Rejected rows: a file of their own, and counts."""

import csv

from kopitiam.contracts.tables import Rejected
from kopitiam.landing.rejected import COLUMNS, RejectedWriter


def test_rejected_rows_are_kept_with_place_and_reason(tmp_path):
    rows = [
        Rejected("users/users.csv", 3, "user_id 'x' is not a whole number", "x,1990-01-01"),
        Rejected("users/users.csv", 9, "birthdate '\"a\"' is not a date like 1988-09-25", '1,"""a"""'),
        Rejected("users/users.csv", 12, "not 2 fields", '1,"A\r\nB",é'),
    ]
    with RejectedWriter(tmp_path / "rejected.csv") as quarantine:
        for row in rows:
            quarantine.add("users", row)
        quarantine.add("stores", rows[0])
    with (tmp_path / "rejected.csv").open(encoding="utf-8", newline="") as file:
        header, *found = csv.reader(file)
    assert tuple(header) == COLUMNS == ("table", "file", "line", "reason", "row")
    wanted = [["users", row.file, str(row.line), row.reason, row.row] for row in rows]
    assert found == [*wanted, ["stores", *wanted[0][1:]]]
    assert quarantine.counts == {"users": 3, "stores": 1}
    assert quarantine.counts["transactions"] == 0


def test_without_rejected_rows_there_is_no_file(tmp_path):
    with RejectedWriter(tmp_path / "rejected.csv") as quarantine:
        pass
    assert list(tmp_path.iterdir()) == []
    assert quarantine.counts.total() == 0
