"""Gateways with S3 storage: their own disks hold only bodies under way."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from gateway_client import GatewayClient, digest_header, eventually, parquet_of
from gateways import Served, served

from kopitiam.contracts.api import CSV
from kopitiam.contracts.config import StorageSection
from kopitiam.contracts.layout import KEYS
from kopitiam.contracts.runs import RunState, new_run_id
from kopitiam.gateway.janitor import remove_finished, sweep
from kopitiam.questions.catalog import builtin
from kopitiam.registry import Fence
from kopitiam.results.answer_files import SUMMARY_FILE
from kopitiam.storage.port import Key
from s3_server import S3Server, private_s3
from sampling import sampled, seed

POINTS = ("chunk.named", "chunk.registered", "chunk.synced", "chunk.durable")
BODY, OTHER = parquet_of("users", 10), parquet_of("users", 11)


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with private_s3() as server:
        yield server


@pytest.fixture(scope="module")
def section(s3: S3Server) -> StorageSection:
    return s3.section()


@pytest.fixture(scope="module")
def pair(section: StorageSection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    """Two gateways that share registry and storage, and no folder."""
    folder = tmp_path_factory.mktemp("machines")
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                served(folder / name, name=name, storage=section, registry_home=folder / "registry")
            )
            for name in ("gateway-1", "gateway-2")
        ]


@pytest.fixture(scope="module")
def client(pair: list[Served]) -> GatewayClient:
    return pair[0].client


@pytest.fixture
def run(client: GatewayClient) -> str:
    return client.open_run()


def chunk_name(run: str, body: bytes, number: int = 0) -> str:
    stem = KEYS.chunk(run, "users", 0, number).with_suffix("")
    return f"{stem}-{hashlib.sha256(body).hexdigest()}.parquet"


def of_run(s3: S3Server, section: StorageSection, run: str) -> dict[str, bytes]:
    return {key: content for key, content in s3.objects(section).items() if f"run={run}/" in key}


def test_an_acknowledged_chunk_is_an_object_and_no_file(s3, section, client, run) -> None:
    assert client.put(run, body=BODY).status_code == 201
    assert of_run(s3, section, run) == {chunk_name(run, BODY): BODY}
    assert client.files_of(run) == client.incoming() == []


def test_an_upload_is_resumed_at_another_gateway(s3, section, pair, run) -> None:
    first, second = (each.client for each in pair)
    assert first.put(run, 0, BODY).status_code == 201
    assert second.durable(run) == {0: hashlib.sha256(BODY).hexdigest()}
    assert second.put(run, 0, BODY).status_code == 200
    assert second.put(run, 1, OTHER).status_code == 201
    assert second.end(run, chunks=2, rows=21).status_code == 200
    assert of_run(s3, section, run) == {chunk_name(run, BODY): BODY, chunk_name(run, OTHER, 1): OTHER}


def test_other_bytes_for_a_number_are_refused_and_leave_nothing(s3, section, pair, run) -> None:
    first, second = (each.client for each in pair)
    assert first.put(run, body=BODY).status_code == 201
    refused = second.put(run, body=OTHER)
    assert (refused.status_code, refused.json()["error"]) == (409, "conflict")
    assert of_run(s3, section, run) == {chunk_name(run, BODY): BODY}


def test_an_orphan_of_another_body_is_removed_when_it_is_sent_again(s3, section, pair, run) -> None:
    """A gateway was killed between its object and the registry."""
    storage, key = pair[0].gateway.storage, KEYS.chunk(run, "users", 0, 0)
    storage.replace(key.with_name(Path(chunk_name(run, OTHER)).name), OTHER)
    assert pair[0].client.put(run, body=BODY).status_code == 201
    assert pair[1].client.put(run, body=OTHER).status_code == 409
    assert of_run(s3, section, run) == {chunk_name(run, BODY): BODY}


def test_one_of_two_bodies_at_once_gets_the_number(s3, section, pair, run) -> None:
    clients = [each.client for each in pair]
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda at, body: at.put(run, 0, body), clients, (BODY, OTHER)))
    assert sorted(answer.status_code for answer in answers) == [201, 409]
    winner = BODY if answers[0].status_code == 201 else OTHER
    assert of_run(s3, section, run) == {chunk_name(run, winner): winner}
    assert clients[0].durable(run) == {0: hashlib.sha256(winner).hexdigest()}


def test_a_late_chunk_leaves_no_object(s3, section, client, run) -> None:
    client.end(run, chunks=0, rows=0)
    assert client.put(run, body=BODY).status_code == 409
    assert of_run(s3, section, run) == {}


def test_rejected_rows_of_chunks_and_clients_are_read_back_from_objects(client, run) -> None:
    assert client.put_csv(run, "user_id,birthdate\n1,\nbad,\n").status_code == 201
    content = b"table,file,line,reason,row\nusers,u.csv,7,strange,x\n"
    place = f"/api/v1/runs/{run}/tables/users/rejected"
    for _ in range(2):  # the last one counts
        headers = {"Content-Type": CSV, **digest_header(content)}
        assert client.http.put(place, content=content, headers=headers).status_code == 204
    lines = client.http.get(f"/api/v1/runs/{run}/rejected.csv").text.splitlines()
    assert lines[0] == "table,file,line,reason,row"
    assert len(lines) == 3
    assert sum("bad," in line for line in lines) == sum("strange" in line for line in lines) == 1


def test_force_end_removes_the_objects_of_its_run_only(s3, section, client, run) -> None:
    other = client.open_run()
    for each in (run, other):
        assert client.put(each, body=BODY).status_code == 201
        assert client.put_csv(each, "user_id,birthdate\nbad,\n", number=1).status_code == 201
    assert client.cancel(run).status_code == 200
    assert of_run(s3, section, run) == {}
    assert len(of_run(s3, section, other)) == 3


def published(gateway: Served, run: str, scratch: Path) -> None:
    """Publish answers, as a pipeline on another machine does."""
    client, at = gateway.client, gateway.gateway
    client.seal(run)
    fence = Fence("pipeline-1", at.registry.take_over("pipeline-1", "a life", 60), "a life")
    at.registry.move(run, RunState.FINAL)
    assert at.registry.claim_final(run, fence)
    with at.storage.new_folder(KEYS.attempt(run, "a1"), scratch) as folder:
        (folder / builtin()["1"].file_name("csv")).write_bytes(b"transaction_id,final_amount\n" * 100_000)
        (folder / SUMMARY_FILE).write_text("{}")
    at.registry.publish_results(run, "a1", {}, fence)
    assert client.status(run)["state"] == RunState.DONE


def test_answers_are_served_from_storage_until_they_are_removed(pair, run, tmp_path) -> None:
    published(pair[0], run, tmp_path)
    place = f"/api/v1/runs/{run}/results"
    answer = pair[1].client.http.get(f"{place}/1.csv")
    assert answer.content == b"transaction_id,final_amount\n" * 100_000
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert "results_query_1.csv" in answer.headers["Content-Disposition"]
    assert pair[1].client.http.get(f"{place}/summary.json").json() == {}
    pair[0].gateway.storage.remove(KEYS.results(run))
    assert pair[1].client.http.get(f"{place}/1.csv").status_code == 404


def test_unreachable_storage_gets_503(s3: S3Server, tmp_path: Path) -> None:
    section = s3.section()
    with served(tmp_path / "home", storage=section) as one:
        run = one.client.open_run()
        bucket = section.url.split("/")[2]
        s3.filesystem.delete_dir(bucket)
        for response in (one.client.put(run, body=BODY), one.client.http.get("/readyz")):
            assert (response.status_code, response.json()["error"]) == (503, "unavailable")
            assert response.headers["Retry-After"]
            assert bucket not in response.text
        s3.filesystem.create_dir(bucket)
        eventually(lambda: one.client.http.get("/readyz").status_code == 200)
        assert one.client.put(run, body=BODY).status_code == 201


def test_runs_of_other_services_in_the_same_bucket_stay(s3, section, pair, run) -> None:
    gateway, client = pair[0].gateway, pair[0].client
    stranger = new_run_id()
    gateway.storage.replace(KEYS.results(stranger) / "attempt=a" / "x", b"theirs")
    assert client.put(run, body=BODY).status_code == 201
    gateway.registry.force_end(run, "cancelled")  # as if its gateway had crashed before the cleanup
    sweep(gateway)
    remove_finished(gateway)
    assert of_run(s3, section, run) == {}
    assert len(of_run(s3, section, stranger)) == 1


@pytest.mark.parametrize("point", sampled(POINTS, 1, seed()))
def test_a_killed_gateway_loses_no_acknowledged_object(s3: S3Server, start, tmp_path, point: str) -> None:
    section = s3.section()
    environment = {
        f"KOPI_STORAGE__{name.upper()}": value for name, value in s3.plain_settings(section).items()
    }
    doomed = start(KOPI_CRASH_AT=f"{point}:2", **environment)
    before = doomed.connect()
    run = before.open_run()
    assert before.put(run, 0, BODY).status_code == 201
    with pytest.raises(httpx.TransportError):
        before.put(run, 1, OTHER)
    assert doomed.is_killed()
    with served(tmp_path / "home", storage=section) as one:
        durable = one.client.durable(run)
        assert (1 in durable) is (point == "chunk.registered")
        assert one.client.put(run, 0, BODY).status_code == 200
        assert one.client.put(run, 1, OTHER).status_code == (200 if 1 in durable else 201)
        assert one.client.end(run, chunks=2, rows=21).status_code == 200
    stored = of_run(s3, section, run)
    assert stored == {chunk_name(run, BODY): BODY, chunk_name(run, OTHER, 1): OTHER}


def test_keys_lie_below_the_prefix(pair: list[Served], section: StorageSection) -> None:
    assert pair[0].gateway.storage.url(Key("x")) == f"s3a://{section.url.removeprefix('s3://')}/x"
