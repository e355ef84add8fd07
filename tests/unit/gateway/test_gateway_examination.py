"""Whether a body is sound, asked without a gateway around it."""

from pathlib import Path

import pytest

from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.contracts.tables import TABLES
from kopitiam.gateway.examination import Finding, Order, examine
from kopitiam.intake.blocks import read_blocks, read_header
from kopitiam.intake.normal_form import NormalForm
from kopitiam.landing.writer import encode

TEXT = "user_id,birthdate\n1,1990-01-01\n2,\nbad,\n"


@pytest.fixture
def order(tmp_path: Path) -> Order:
    body = tmp_path / "x.body"
    body.write_text(TEXT)
    parquet, rejected = str(tmp_path / "x.parquet"), str(tmp_path / "x.rejected")
    return Order(str(body), CSV, "users", parquet, rejected, max_bytes=10_000, max_rows=100)


def altered(order: Order, **changes: object) -> Order:
    return Order(**(vars(order) | changes))


def test_csv_becomes_normal_form_with_its_bad_rows_beside_it(order: Order) -> None:
    assert examine(order) == Finding(rows=2, rejected=1)
    assert Path(order.rejected).read_text().count("bad,") == 1
    again = altered(order, body=order.parquet, media_type=PARQUET)
    assert examine(again) == Finding(rows=2)


def test_a_full_disk_is_not_the_fault_of_the_body(order: Order, tmp_path: Path) -> None:
    for elsewhere in ({"parquet": "/dev/full"}, {"parquet": str(tmp_path)}, {"body": str(tmp_path / "gone")}):
        finding = examine(altered(order, **elsewhere))
        assert finding.refusal is None
        assert finding.trouble, elsewhere


def test_a_refusal_does_not_name_our_files(order: Order) -> None:
    Path(order.body).write_text('"user_id')
    refusal = examine(order).refusal
    assert refusal
    assert "chunk of users, line 1" in refusal
    assert order.body not in refusal


def test_what_unfolds_to_more_than_a_chunk_may_is_refused(order: Order, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("item_id,item_name\n" + f"1,{'x' * 900}\n" * 100)
    table = TABLES["menu_items"]
    form = NormalForm(table, read_header(names), "names")
    Path(order.body).write_bytes(encode(table, form.normalize(next(read_blocks(names))).rows))
    sound = altered(order, media_type=PARQUET, table="menu_items", max_bytes=100_000)
    assert examine(sound) == Finding(rows=100)
    assert "unfolds" in str(examine(altered(sound, max_bytes=5_000)).refusal)
    assert "rows" in str(examine(altered(sound, max_rows=99)).refusal)
