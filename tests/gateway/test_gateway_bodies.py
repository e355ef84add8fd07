"""Bodies: Parquet and CSV of the same rows are the same chunk; unsound bodies are refused with a reason."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from gateway_client import (
    GatewayClient,
    RawUpload,
    digest_header,
    eventually,
    parquet_file,
    parquet_of,
    rows_of,
)

from catalog_tables import TABLES
from kopitiam.contracts.api import CSV, PARQUET
from kopitiam.gateway import admission


def csv_of(table: str, rows: pa.Table) -> str:
    """Return the rows as an export has them: money with decimals, times without a zone."""
    spelled = io.StringIO()
    writer = csv.writer(spelled)
    writer.writerow([*rows.column_names, "extra"])
    for row in rows.to_pylist():
        cells = []
        for column in TABLES[table].columns:
            cell = row[column.name]
            if column.kind.value == "money":
                cell = f"{cell // 10_000}.{cell % 10_000:04d}"
            elif column.kind.value == "instant":
                cell = f"{cell:%Y-%m-%d %H:%M:%S}"
            cells.append(cell)
        writer.writerow([*cells, "x"])
    return spelled.getvalue()


@pytest.mark.parametrize("table", TABLES)
def test_csv_and_parquet_of_the_same_rows_become_the_same_file(
    client: GatewayClient, run, table: str
) -> None:
    assert client.put(run, 0, table=table).status_code == 201
    response = client.put_csv(run, csv_of(table, rows_of(table)), 1, table)
    assert (response.status_code, response.json()["rows"]) == (201, 10)
    files = [client.file(run, number, table).read_bytes() for number in (0, 1)]
    assert files[0] == files[1] == parquet_of(table)


def test_bad_rows_are_rejected_counted_and_downloadable(client: GatewayClient, run: str) -> None:
    text = "user_id,birthdate\n1,1990-01-01\nx,1990-01-01\n3,1990-02-30\n4,\n5\n"
    response = client.put_csv(run, text)
    assert response.status_code == 201
    assert (response.json()["rows"], response.json()["rejected"]) == (2, 3)
    status = client.status(run)
    assert (status["rejected"], status["tables"]["users"]["rejected"]) == (3, 3)
    listed = client.http.get(f"/api/v1/runs/{run}/rejected.csv")
    assert listed.headers["Content-Type"].startswith(CSV)
    rows = list(csv.DictReader(io.StringIO(listed.text)))
    assert [(row["table"], row["line"]) for row in rows] == [("users", "3"), ("users", "4"), ("users", "6")]
    assert [row["row"] for row in rows] == ["x,1990-01-01", "3,1990-02-30", "5"]
    assert all("users" in row["file"] and row["reason"] for row in rows)
    assert client.put_csv(run, text).status_code == 200
    assert client.status(run)["rejected"] == 3


def test_without_bad_rows_the_rejected_file_is_not_found(client: GatewayClient, run: str) -> None:
    client.put(run)
    assert client.http.get(f"/api/v1/runs/{run}/rejected.csv").status_code == 404


def test_rows_that_the_client_rejected_are_listed_with_the_others(client: GatewayClient, run: str) -> None:
    client.put_csv(run, "user_id,birthdate\nbad,\n")
    place = f"/api/v1/runs/{run}/tables/stores/rejected"
    header = "table,file,line,reason,row\n"
    for line in ("stores,s.csv,2,bad,first", "stores,s.csv,2,bad,last"):  # the last one counts
        response = client.http.put(place, content=(header + line).encode(), headers={"Content-Type": CSV})
        assert response.status_code == 204
    rows = list(csv.DictReader(io.StringIO(client.http.get(f"/api/v1/runs/{run}/rejected.csv").text)))
    assert [(row["table"], row["row"]) for row in rows] == [("stores", "last"), ("users", "bad,")]


def test_rejected_rows_may_come_in_parts_and_the_last_set_counts(client: GatewayClient, run: str) -> None:
    place = f"/api/v1/runs/{run}/tables/stores/rejected"

    def put(part: int, parts: int, row: str) -> int:
        content = f"table,file,line,reason,row\nstores,s.csv,2,bad,{row}\n"
        query = {"part": part, "parts": parts}
        return client.http.put(
            place, content=content, headers={"Content-Type": CSV}, params=query
        ).status_code

    def listed() -> list[str]:
        text = client.http.get(f"/api/v1/runs/{run}/rejected.csv").text
        return [row["row"] for row in csv.DictReader(io.StringIO(text))]

    assert [put(part, 12, str(part)) for part in reversed(range(12))] == [204] * 12
    assert listed() == [str(part) for part in range(12)]
    assert len(client.http.get(f"/api/v1/runs/{run}/rejected").json()["rows"]) == 12
    assert [put(part, 2, f"again {part}") for part in range(2)] == [204] * 2
    assert listed() == ["again 0", "again 1"]
    assert {put(2, 2, "none"), put(-1, 2, "none"), put(0, 10**9, "none")} == {422}


def test_rejected_rows_must_be_csv_of_bounded_size(client: GatewayClient, run: str) -> None:
    place = f"/api/v1/runs/{run}/tables/stores/rejected"
    assert client.http.put(place, content=b"x", headers={"Content-Type": PARQUET}).status_code == 415
    large = client.http.put(place, content=b"x" * (9 << 20), headers={"Content-Type": CSV})
    assert (large.status_code, large.json()["error"]) == (413, "too_large")
    assert client.files_of(run) == []


@pytest.mark.parametrize(
    "media_type", [None, "application/octet-stream", "text/plain", "application/json", ","]
)
def test_a_body_of_another_media_type_is_refused(client: GatewayClient, run: str, media_type) -> None:
    response = client.put(run, media_type=media_type)
    assert (response.status_code, response.json()["error"]) == (415, "media_type")
    assert PARQUET in response.json()["message"]


def test_a_media_type_may_have_parameters_and_capitals(client: GatewayClient, run: str) -> None:
    response = client.put(run, 0, b"user_id,birthdate\n1,\n", media_type="Text/CSV; charset=utf-8")
    assert response.status_code == 201


@pytest.mark.parametrize(
    "digest",
    [
        digest_header(b"other")["Content-Digest"],
        "sha-256=:AAAA:",
        "sha-256=x",
        "md5=:AAAA:",
        "",
        "sha-256=:=:",
    ],
)
def test_a_digest_that_does_not_fit_is_refused(client: GatewayClient, run: str, digest: str) -> None:
    response = client.put(run, headers={"Content-Digest": digest})
    assert (response.status_code, response.json()["error"]) == (422, "digest")
    assert client.files_of(run) == []


def test_a_digest_may_stand_among_others_or_be_left_out(client: GatewayClient, run: str) -> None:
    digests = "sha-512=:AAAA:, " + digest_header(parquet_of())["Content-Digest"]
    assert client.put(run, headers={"Content-Digest": digests}).status_code == 201
    without = client.http.put(
        f"/api/v1/runs/{run}/tables/users/chunks/0", content=parquet_of(), headers={"Content-Type": PARQUET}
    )
    assert without.status_code == 200


def changed(rows: pa.Table, name: str, values: list[object], kind: pa.DataType | None = None) -> pa.Table:
    position = rows.column_names.index(name)
    column = pa.array(values, kind or rows.schema.field(name).type)
    return rows.set_column(position, pa.field(name, column.type), column)


def times(*moments: object) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: changed(rows.slice(0, len(moments)), "created_at", list(moments))


EARLY, LATE = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
FLAWS: dict[str, tuple[str, Callable[[pa.Table], pa.Table], str]] = {
    "another table": ("users", lambda _: rows_of("stores"), "normal form"),
    "a column missing": ("users", lambda rows: rows.drop_columns(["birthdate"]), "normal form"),
    "a column too many": ("users", lambda rows: rows.append_column("x", pa.array(range(10))), "normal form"),
    "a column twice": ("users", lambda rows: rows.append_column("user_id", rows["user_id"]), "normal form"),
    "an id as text": ("users", lambda rows: changed(rows, "user_id", ["1"] * 10, pa.string()), "normal form"),
    "an id as float": ("users", lambda r: changed(r, "user_id", [1.0] * 10, pa.float64()), "normal form"),
    "a short id": ("users", lambda r: changed(r, "user_id", [1] * 10, pa.int32()), "normal form"),
    "a time without zone": (
        "transaction_items",
        lambda r: changed(r, "created_at", [datetime(2024, 1, 1)] * 10, pa.timestamp("us")),
        "normal form",
    ),
    "a null id": ("users", lambda r: changed(r, "user_id", [None] * 10), "empty"),
    "a null name": ("stores", lambda r: changed(r, "store_name", ["x"] * 9 + [None]), "empty"),
    "an empty name": ("stores", lambda r: changed(r, "store_name", ["x"] * 9 + [""]), "empty"),
    "a null time": ("transaction_items", times(datetime(2024, 1, 1, tzinfo=UTC), None), "empty"),
    "a negative id": ("users", lambda r: changed(r, "user_id", [-1] * 10), "out of range"),
    "a huge id": ("users", lambda r: changed(r, "user_id", [10**17] * 10), "out of range"),
    "a huge count": ("transaction_items", lambda r: changed(r, "quantity", [10**17] * 10), "out of range"),
    "a huge amount": ("transaction_items", lambda r: changed(r, "subtotal", [10**18] * 10), "out of range"),
    "a low amount": ("transaction_items", lambda r: changed(r, "subtotal", [-(10**18)] * 10), "out of range"),
    "a part of a second": (
        "transaction_items",
        times(datetime(2024, 1, 1, 1, 1, 1, 5, tzinfo=UTC)),
        "fractions of a second",
    ),
    "a time past all years": ("transaction_items", times(2**62 // 10**6 * 10**6), "out of range"),
    "a time before all years": ("transaction_items", times(-(2**62) // 10**6 * 10**6), "out of range"),
    "a birthdate past all years": ("users", lambda r: changed(r, "birthdate", [2**30] * 10), "out of range"),
    "a birthdate before all years": (
        "users",
        lambda r: changed(r, "birthdate", [-(2**30)] * 10),
        "out of range",
    ),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_parquet_that_is_not_in_normal_form_is_refused(client: GatewayClient, run: str, flaw: str) -> None:
    table, damage, reason = FLAWS[flaw]
    response = client.put(run, 0, parquet_file(damage(rows_of(table))), table)
    assert (response.status_code, response.json()["error"]) == (422, "unsound")
    assert reason in response.json()["message"]
    assert client.files_of(run) == []


def test_text_that_is_not_utf8_is_refused(client: GatewayClient, run: str) -> None:
    sound = parquet_file(rows_of("stores"), store_schema=False, compression="none", use_dictionary=False)
    body = sound.replace(b"text-7", b"text-\xff")
    assert body != sound
    response = client.put(run, 0, body, "stores")
    assert response.status_code == 422
    assert "UTF" in response.json()["message"]


def test_values_at_the_bounds_are_accepted(client: GatewayClient, run: str) -> None:
    users = changed(rows_of("users"), "birthdate", [date.min, date.max, None, *[date(2000, 1, 1)] * 7])
    users = changed(users, "user_id", [0, 10**17 - 1, *range(8)])
    assert client.put(run, 0, parquet_file(users)).status_code == 201
    items = times(EARLY, LATE, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))(rows_of("transaction_items"))
    items = changed(items, "subtotal", [10**18 - 1, 1 - 10**18, 0])
    assert client.put(run, 0, parquet_file(items), "transaction_items").status_code == 201


def test_a_chunk_may_be_empty_or_have_its_columns_in_any_order(client: GatewayClient, run: str) -> None:
    assert client.put(run, 0, parquet_of("users", 0)).json()["rows"] == 0
    turned = rows_of("users").select(["birthdate", "user_id"])
    assert client.put(run, 1, parquet_file(turned, row_group_size=3)).json()["rows"] == 10


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column user_id, birthdate"),
        ("user_id\n1\n", "no column birthdate"),
        ("user_id,birthdate,user_id\n", "twice"),
        ('"user_id,birthdate\n1,\n', "not closed"),
        ("user_id,birthdate\n1,\xff\n", "UTF-8"),
    ],
)
def test_csv_without_structure_is_refused_without_naming_files_of_the_gateway(
    client, run, text: str, reason: str
) -> None:
    response = client.put(run, 0, text.encode("latin-1"), media_type=CSV)
    assert (response.status_code, response.json()["error"]) == (422, "unsound")
    assert reason in response.json()["message"]
    assert str(client.home.path) not in response.text
    assert client.files_of(run) == []


@pytest.mark.parametrize("media_type", [PARQUET, CSV])
def test_an_empty_body_is_refused(client: GatewayClient, run: str, media_type: str) -> None:
    assert client.put(run, 0, b"", media_type=media_type).status_code == 422


def test_more_rows_than_allowed_are_refused(serve) -> None:
    client = serve(max_chunk_rows=100).client
    run = client.open_run()
    assert client.put(run, 0, parquet_of("users", 100)).status_code == 201
    header = "user_id,birthdate\n"
    for body, media_type in (
        (parquet_of("users", 101), PARQUET),
        ((header + "1,\n" * 101).encode(), CSV),
        ((header + "bad,\n" * 101).encode(), CSV),
        ((header + "1,\nbad,\n" * 51).encode(), CSV),
    ):
        response = client.put(run, 1, body, media_type=media_type)
        assert response.status_code == 422
        assert "100" in response.json()["message"]
    assert client.put(run, 2, (header + "1,\nbad,\n" * 50).encode(), media_type=CSV).status_code == 201


def test_more_bytes_than_allowed_are_refused_with_and_without_a_content_length(serve) -> None:
    client = serve(max_chunk_bytes=10_000).client
    run = client.open_run()
    honest = client.put(run, 0, b"x" * 10_001)
    streamed = client.put(run, 0, iter([b"x" * 1000] * 11))
    for response in (honest, streamed):
        assert (response.status_code, response.json()["error"]) == (413, "too_large")
    assert client.put(run).status_code == 201
    assert client.incoming() == []


def test_a_body_that_pauses_too_long_gets_408(serve) -> None:
    client = serve(idle_seconds=0.3).client
    run = client.open_run()
    upload = RawUpload(client.url, run, size=1000)
    upload.send(b"x" * 10)
    status, problem = upload.answer()
    assert (status, problem["error"]) == (408, "idle")
    upload.close()
    assert client.incoming() == []
    assert client.put(run).status_code == 201


def test_a_body_that_breaks_off_leaves_no_file(client: GatewayClient, run: str) -> None:
    body = parquet_of("users", 5000)
    upload = RawUpload(client.url, run, size=len(body))
    upload.send(body[:-1])
    eventually(client.incoming)
    upload.close()
    eventually(lambda: client.incoming() == [])
    assert client.durable(run) == {}
    assert client.put(run, 0, body).status_code == 201


def test_more_bodies_than_allowed_at_once_get_429(serve, monkeypatch) -> None:
    monkeypatch.setattr(admission, "_PLACE_SECONDS", 0.1)
    client = serve(max_bodies=4, min_bytes_per_second=0).client  # of one owner two
    run = client.open_run()
    uploads = [RawUpload(client.url, run, size=1000, number=number) for number in range(2)]
    eventually(lambda: client.metric("kopitiam_bodies_under_way") == 2)
    response = client.put(run, 5)
    assert (response.status_code, response.json()["error"]) == (429, "busy")
    assert int(response.headers["Retry-After"]) > 0
    for upload in uploads:
        upload.close()
    eventually(lambda: client.metric("kopitiam_bodies_under_way") == 0)
    assert client.put(run, 5).status_code == 201


def test_every_refusal_is_json_with_a_code_and_a_message(client: GatewayClient, run: str) -> None:
    for response in (client.put(run, 0, b"x"), client.put(run, -1), client.put(run, media_type="x")):
        problem = json.loads(response.content)
        assert problem["error"].isidentifier()
        assert " " in problem["message"]
