"""Faults that damage files of the home. The product must refuse, fail with a reason, or recover."""

import contextlib
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from sales import FolderClient, Sales, Upload
from services import ANSWER_SECONDS, Service

from kopitiam.questions.catalog import builtin
from tools.reliability.measurements import Measurement, at_most, none_of
from tools.reliability.scenes import (
    CHUNK_ROWS,
    Account,
    Session,
    await_over,
    fetch,
    is_ready,
    serving,
)

_PAGE_BYTES = 4096
Damage = Callable[[bytearray, random.Random], bytearray]


def _one_bit(content: bytearray, chance: random.Random) -> bytearray:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return content


def _some_bytes(content: bytearray, chance: random.Random) -> bytearray:
    begin = chance.randrange(len(content))
    content[begin : begin + 64] = chance.randbytes(len(content[begin : begin + 64]))
    return content


def _a_block(content: bytearray, chance: random.Random) -> bytearray:
    begin = chance.randrange(len(content))
    content[begin : begin + 512] = bytes(len(content[begin : begin + 512]))
    return content


def _torn(content: bytearray, chance: random.Random) -> bytearray:
    return content[: chance.randrange(len(content))]


_DAMAGES: tuple[Damage, ...] = (_one_bit, _some_bytes, _a_block, _torn)


def damage_file(file: Path, damage: Damage, chance: random.Random) -> str:
    """Damages the file and returns a description of the damage."""
    content = bytearray(file.read_bytes())
    file.write_bytes(damage(content, chance))
    return f"{file.name}: {damage.__name__.strip('_').replace('_', ' ')}"


class _Verdicts:
    """Counts the outcomes of runs whose files were damaged."""

    def __init__(self) -> None:
        self.failed = self.exact = self.silent = 0
        self.account = Account()  # of damaged runs that were answered all the same

    def judge(self, service: Service, sales: Sales, run: str, out: Path) -> None:
        answers = fetch(service, run, out)
        status = service.status(run)
        if status["state"] == "done":
            self.exact += answers == sales.answers
            self.account.add(sales, status, answers)
        else:
            self.failed += 1
            self.silent += not status["error"]


def landed_chunks(session: Session) -> Iterator[Measurement]:
    """Damages chunks before any batch has read them."""
    folder, chance = session.new_folder("landed-chunks"), random.Random(session.seed)
    sales, count = session.sales("damaged", session.seed + 3), session.pick(12, 3)
    with serving(folder, starts=False) as service:
        *doomed, sound = _send_unprocessed(service, sales, [*(f"doomed-{n}" for n in range(count)), "sound"])
        for position, run in enumerate(doomed):
            files = sorted((service.home / "landing").glob(f"table=*/shard=*/run={run}/*.parquet"))
            session.say(damage_file(chance.choice(files), _DAMAGES[position % len(_DAMAGES)], chance))
        service.start()
        yield _judged(_Scene(session, service, sales, folder), doomed, sound, "landed chunks")


def partials(session: Session) -> Iterator[Measurement]:
    """Damages partials after all chunks are processed and before END."""
    folder, chance = session.new_folder("partials"), random.Random(session.seed)
    sales, count = session.sales("damaged-partials", session.seed + 4), session.pick(12, 3)
    with serving(folder) as service:
        uploads = [Upload(service, folder / "sent" / str(number)) for number in range(count + 1)]
        for upload in uploads:
            upload.send_all(sales, CHUNK_ROWS)
        for upload in uploads:
            upload.await_processed()
        service.kill()
        *doomed, sound = uploads
        for position, upload in enumerate(doomed):
            files = [
                path for path in (service.home / "partials").rglob("*.parquet") if upload.run in str(path)
            ]
            session.say(damage_file(chance.choice(sorted(files)), _DAMAGES[position % len(_DAMAGES)], chance))
        service.start()
        for upload in uploads:
            upload.end()
        runs = [upload.run for upload in doomed]
        yield _judged(_Scene(session, service, sales, folder), runs, sound.run, "partials")


@dataclass(frozen=True)
class _Scene:
    session: Session
    service: Service
    sales: Sales
    folder: Path


def _judged(scene: _Scene, doomed: list[str], sound: str, what: str) -> Measurement:
    """Awaits all runs, then checks: damaged ones failed or are exact, the sound one is exact."""
    service, sales, folder = scene.service, scene.sales, scene.folder
    began, verdicts, others = time.monotonic(), _Verdicts(), Account()
    for run in doomed:
        verdicts.judge(service, sales, run, folder / "answers" / run)
    answers = fetch(service, sound, folder / "answers" / sound)
    others.add(sales, service.status(sound), answers)
    return Measurement(
        f"torn and flipped bytes in {what}",
        f"{len(doomed)} runs, one file each, and one sound run",
        scene.session.seed,
        (
            none_of("wrong answers", verdicts.account.wrong_answers + others.wrong_answers),
            none_of("rows lost", verdicts.account.rows_lost + others.rows_lost),
            none_of("rows double", verdicts.account.rows_double + others.rows_double),
            none_of("failed without a reason", verdicts.silent),
            none_of("sound runs wrongly ended", others.wrongly_ended),
            at_most("to notice all", time.monotonic() - began, ANSWER_SECONDS, "s"),
        ),
        notes=(f"{verdicts.failed} runs failed with a reason, {verdicts.exact} were answered exactly",),
    )


def _send_unprocessed(service: Service, sales: Sales, labels: list[str]) -> list[str]:
    """Sends runs whose chunks land but are never read: the service crashes at its first batch."""
    with ThreadPoolExecutor(len(labels)) as threads, contextlib.closing(FolderClient(service)) as client:
        sending = [threads.submit(client.send, sales, CHUNK_ROWS, label) for label in labels]
        while not all(future.done() for future in sending):
            service.begin(KOPI_CRASH_AT="batch.begun")
            assert service.has_died(ANSWER_SECONDS)
        return [future.result() for future in sending]


def result_files(session: Session) -> Iterator[Measurement]:
    """Damages one published file at a time, reads all forms of the answers, and restores the file."""
    folder, chance = session.new_folder("result-files"), random.Random(session.seed)
    sales, count = session.sales("result-files", session.seed + 5), session.pick(60, 6)
    wrong, refused, same, details = 0, 0, 0, list[str]()
    with serving(folder) as service:
        upload = Upload(service, folder / "sent")
        upload.send_all(sales, CHUNK_ROWS)
        upload.end()
        await_over(service, upload.run)
        names = [f"{name}.{form}" for name in builtin() for form in ("csv", "json")]
        sound = {name: upload.result(name).content for name in names}
        files = sorted(
            path
            for path in (service.home / "results" / f"run={upload.run}").rglob("*")
            if path.is_file() and path.suffix in (".csv", ".json", ".parquet")
        )
        for position in range(count):
            file = files[position % len(files)]
            content = file.read_bytes()
            damage = damage_file(file, chance.choice(_DAMAGES), chance)
            if file.read_bytes() == content:  # zeros over zeros
                continue
            for name in names:
                with contextlib.suppress(httpx.TransportError):
                    response = upload.result(name)
                    if response.status_code == 200 and response.content != sound[name]:
                        wrong += 1
                        details.append(f"{damage}: {name} was served with other bytes")
                    elif response.status_code == 200:
                        same += 1
                    refused += response.status_code >= 400
            file.write_bytes(content)
        answers = upload.answers()
        account = Account()
        account.add(sales, upload.status(), answers)
    yield Measurement(
        "torn and flipped bytes in result files",
        f"{count} files, all answers read each time",
        session.seed,
        (
            none_of("wrong answers", wrong + account.wrong_answers),
            none_of("wrong after the file is put back", account.wrong_answers),
        ),
        notes=(
            f"{refused} downloads were refused, {same} were served with the right bytes",
            *sorted(set(details))[:5],
        ),
    )


def checkpoints(session: Session) -> Iterator[Measurement]:
    """Kills the service after its second batch and damages a file of its checkpoint."""
    folder, chance = session.new_folder("checkpoints"), random.Random(session.seed)
    count, account, recovered = session.pick(6, 1), Account(), list[float]()
    sales = session.sales("checkpoints", session.seed + 6)
    with (
        serving(folder, starts=False) as service,
        ThreadPoolExecutor(1) as threads,
        contextlib.closing(FolderClient(service)) as client,
    ):
        for position in range(count):
            service.begin(KOPI_CRASH_AT="batch.committed:2")
            sending = threads.submit(client.send, sales, CHUNK_ROWS, f"checkpoint-{position}")
            assert service.has_died(ANSWER_SECONDS)
            files = [path for path in (service.home / "checkpoints").rglob("*") if path.is_file()]
            file = chance.choice(sorted(path for path in files if path.stat().st_size))
            session.say(damage_file(file, _DAMAGES[position % len(_DAMAGES)], chance))
            began = time.monotonic()
            service.start()
            run = sending.result(ANSWER_SECONDS)
            answers = fetch(service, run, folder / "answers" / run)
            account.add(sales, service.status(run), answers)
            recovered.append(time.monotonic() - began)
            service.stop()
    yield Measurement(
        "torn and flipped bytes in Spark's checkpoint",
        f"{count} starts, one file each",
        session.seed,
        (*account.figures(), at_most("to recover", max(recovered), ANSWER_SECONDS, "s")),
        notes=tuple(account.complaints),
    )


def registry_pages(session: Session) -> Iterator[Measurement]:
    """Damages a root page of the registry in a copy of the home, and starts the service on it."""
    folder, chance = session.new_folder("registry-pages"), random.Random(session.seed)
    count, sales = session.pick(10, 2), session.sales("registry-pages", session.seed + 7)
    with serving(folder / "sound") as service:
        done, upload = (Upload(service, folder / f"sent-{name}") for name in ("done", "open"))
        done.send_all(sales, CHUNK_ROWS)
        upload.send_all(sales, CHUNK_ROWS)
        done.end()
        await_over(service, done.run)
        upload.await_processed()
        service.stop()
    registry = folder / "sound" / "home" / "registry.sqlite"
    assert not list(registry.parent.glob("registry.sqlite-wal")), "the registry was not closed"
    roots = _root_pages(registry)
    tally = {"refused": 0, "wrong": 0, "unexplained": 0, "removed": 0, "exact": 0, "tracebacks": 0}
    for trial in range(count):
        name, page = chance.choice(roots)
        place = folder / f"trial-{trial}"
        shutil.copytree(folder / "sound" / "home", place / "home")
        _damage_page(place / "home" / "registry.sqlite", page, trial, chance)
        with serving(place, starts=False) as service:
            outcome = _started_on_damage(service, sales, done, upload)
        session.say(f"root page {page} of {name}: {outcome}")
        for key in tally:
            tally[key] += outcome.get(key, 0)
    yield Measurement(
        "damaged root pages of registry.sqlite",
        f"{count} starts, one page each",
        session.seed,
        (
            none_of("wrong answers", tally["wrong"]),
            none_of("data files removed", tally["removed"]),
            none_of("starts that ended without a reason", tally["unexplained"]),
            none_of("tracebacks shown", tally["tracebacks"]),
        ),
        notes=(f"{tally['refused']} starts were refused, {tally['exact']} answered exactly",),
    )


def _root_pages(registry: Path) -> list[tuple[str, int]]:
    with contextlib.closing(sqlite3.connect(registry)) as database:
        roots = database.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0").fetchall()
    return [(str(name), int(page)) for name, page in [("sqlite_master", 1), *sorted(roots)]]


def _damage_page(registry: Path, page: int, trial: int, chance: random.Random) -> None:
    """Overwrites the header of the page, fills the page with zeros, or truncates the file in it."""
    content = bytearray(registry.read_bytes())
    begin = (page - 1) * _PAGE_BYTES
    match trial % 3:
        case 0:
            content[begin : begin + 16] = chance.randbytes(16)
        case 1:
            content[begin : begin + _PAGE_BYTES] = bytes(_PAGE_BYTES)
        case _:
            content = content[: begin + _PAGE_BYTES // 2]
    registry.write_bytes(content)


def _started_on_damage(service: Service, sales: Sales, done: Upload, upload: Upload) -> dict[str, int]:
    """Starts the service on the damaged home and counts refusals, wrong answers and removed files."""
    landed = set((service.home / "landing").rglob("*.parquet"))
    published = set((service.home / "results").rglob("*.parquet"))
    service.begin()
    assert service.process is not None
    deadline = time.monotonic() + 60
    while service.process.poll() is None and not is_ready(service) and time.monotonic() < deadline:
        time.sleep(0.1)
    outcome: dict[str, int] = {}
    if service.process.poll() is None:
        outcome = _answers_on_damage(service, sales, done, upload)
    else:
        outcome["refused"] = 1
    log = service.log.read_text(encoding="utf-8", errors="replace")
    outcome["unexplained"] = int(bool(outcome.get("refused")) and not log.strip())
    outcome["tracebacks"] = int("Traceback" in log)
    is_answered = bool(outcome.get("exact"))  # then the landing of that run has been cleaned up
    missing = {path for path in published if not path.exists()}
    if not is_answered:
        missing |= {path for path in landed if not path.exists()}
    return outcome | {"removed": len(missing)}


def _answers_on_damage(service: Service, sales: Sales, done: Upload, upload: Upload) -> dict[str, int]:
    wrong = exact = 0
    for name, expected in sales.answers.items():
        with contextlib.suppress(httpx.TransportError):
            response = service.http.get(f"/api/v1/runs/{done.run}/results/{name}.csv")
            wrong += response.status_code == 200 and response.content != expected
    with contextlib.suppress(httpx.TransportError, AssertionError):
        for table, rows in upload.chunks.items():
            path = f"/api/v1/runs/{upload.run}/tables/{table}/end"
            service.http.post(path, json={"chunks": len(rows), "rows": sum(rows)})
        if await_over(service, upload.run, 60) == "done":
            for name, expected in sales.answers.items():
                response = service.http.get(f"/api/v1/runs/{upload.run}/results/{name}.csv")
                wrong += response.status_code == 200 and response.content != expected
            exact = int(not wrong)
    return {"wrong": wrong, "exact": exact}
