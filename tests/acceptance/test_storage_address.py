"""Storage by address: the commands with `storage.url = "file:///…"`, through the adapter of S3 and HDFS."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sales import FEW, FolderClient, answers_in, make_sales
from services import ANSWER_SECONDS, SMALL_BATCHES, TIDY_SECONDS, Service, until

from kopitiam.verification import verify
from sampling import IS_FULL
from trees import files_below

CHUNK_ROWS = 400  # a chunk or two of each table: few batches, since each costs its time


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def addressed(environment: dict[str, str], place: Path) -> dict[str, str]:
    return environment | {"KOPI_STORAGE__URL": f"file://{place}"}


@pytest.fixture
def service(tmp_path: Path, addressed: dict[str, str]) -> Iterator[Service]:
    served = Service(tmp_path / "service" / "home", addressed | SMALL_BATCHES)
    yield served
    served.end()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in files_below(folder)}


@pytest.mark.long
def test_a_service_killed_in_a_batch_answers_exactly_from_its_address(
    service: Service, place: Path, tmp_path: Path
) -> None:
    sales, out = make_sales(tmp_path / "sales", 3, FEW), tmp_path / "answers"
    service.start(KOPI_CRASH_AT="batch.written")
    with ThreadPoolExecutor(1) as thread, closing(FolderClient(service, ANSWER_SECONDS)) as client:
        sending = thread.submit(client.send, sales, CHUNK_ROWS, label="by address")
        assert service.has_died(ANSWER_SECONDS)
        chunks, partials = files_in(place / "landing"), files_in(place / "partials")
        service.start()
        run = sending.result(ANSWER_SECONDS)
        client.fetch(run, out)

    assert all("/chunk-" in name and len(name.rpartition("-")[2]) == len(".parquet") + 64 for name in chunks)
    assert partials
    assert answers_in(out) == sales.answers
    assert verify(sales.folder, out).differences == ()
    kept = {"results", "rejected", "registry.json"}
    until(lambda: {name.split("/")[0] for name in files_in(place)} == kept, TIDY_SECONDS)
    kept_at_home = {name.split("/")[0] for name in files_in(service.home)}
    assert not kept_at_home & {"landing", "partials", "results", "rejected", "incoming"}


@pytest.mark.skipif(not IS_FULL, reason="in the full matrix: its parts are tested")
@pytest.mark.long
def test_an_analysis_is_exact_and_leaves_nothing_at_its_address(
    analyze_tiny: Callable, tiny_analyzed, addressed: dict[str, str], place: Path
) -> None:
    tiny = analyze_tiny(env=addressed)
    assert (tiny.run.code, tiny.run.stderr) == (0, "")
    answers, wanted = tiny.contents(), tiny_analyzed.contents()
    assert all(answers[name] == wanted[name] for name in wanted if name.startswith("results_query_"))
    assert place.is_dir()
    assert files_in(place) == set()


def test_unusable_storage_is_reported_in_one_line(kopi, tiny_folder, environment, tmp_path) -> None:
    (tmp_path / "taken").write_text("in the way")
    url = f"file://{tmp_path}/taken/kopitiam"
    run = kopi("analyze", tiny_folder, env=environment | {"KOPI_STORAGE__URL": url})
    assert run.code == 3
    assert run.stderr.strip().splitlines()[-1].endswith("cannot be written: File exists")
    assert f"storage.url {url}/private-" in run.stderr
