"""The faults poison-run and stopped-jvm: Spark's JVM is killed or stopped while `kopi serve` works."""

import contextlib
import signal
import time
from collections.abc import Iterator

import psutil
from sales import Upload
from services import ANSWER_SECONDS, Service

from tools.reliability.measurements import Measurement, at_least, at_most, none_of
from tools.reliability.scenes import (
    CHUNK_ROWS,
    OVER,
    Account,
    Session,
    fetch,
    is_ready,
    java_process,
    seconds_until,
    serving,
    state_of,
)
from trees import paths_below

_ATTEMPTS = 3
_MOST_KILLS = 6
_NOTICE_SECONDS = 40.0
_RECOVER_SECONDS = 120.0


def poison_run(session: Session) -> Iterator[Measurement]:
    """Kills the JVM at each attempt at the final step of one run, while other runs are uploaded.

    A service that ends with its JVM is started again, as a supervisor would do.
    """
    folder, account = session.new_folder("poison-run"), Account()
    sales = session.sales("poison-run", session.seed + 9)
    with serving(folder) as service:
        doomed = Upload(service, folder / "sent-doomed")
        others = [Upload(service, folder / f"sent-{number}") for number in range(2)]
        for upload in (doomed, *others):
            upload.send_all(sales, CHUNK_ROWS)
        for upload in (doomed, *others):
            upload.await_processed()
        doomed.end()
        kills, restarts, began = _kill_each_attempt(session, service, doomed.run)
        seconds = time.monotonic() - began
        state = state_of(service, doomed.run)
        for upload in others:
            upload.end()
        restarts += _await_others(service, others)
        for number, upload in enumerate(others):
            answers = fetch(service, upload.run, folder / f"answers-{number}")
            account.add(sales, upload.status(), answers)
        status = service.status(doomed.run)
        is_up = service.is_alive and is_ready(service)
    yield Measurement(
        "a run whose final step kills the JVM each time",
        f"{kills} kills, {len(others)} runs beside it",
        session.seed,
        (
            at_least("poison run failed with a reason", int(state == "failed" and bool(status["error"])), 1),
            at_most("attempts before it failed", kills, _ATTEMPTS),
            at_least("service up afterwards", int(is_up), 1),
            *account.figures(),
            at_most("until it failed", seconds, 240, "s"),
        ),
        notes=(
            f"the run says: {status['error']}",
            f"the service ended with its JVM and was started again {restarts} times",
        ),
    )


def _kill_each_attempt(session: Session, service: Service, run: str) -> tuple[int, int, float]:
    """Kills the JVM when a scratch folder of a final step appears. Returns kills, restarts, start time."""
    kills, restarts, folders_seen = 0, 0, set[str]()
    began = time.monotonic()
    while kills < _MOST_KILLS and time.monotonic() - began < ANSWER_SECONDS * 2:
        if not service.is_alive:
            service.start()
            restarts += 1
        if state_of(service, run) in OVER:
            break
        new = {
            str(path) for path in paths_below(service.home) if path.name.startswith(f"run-{run}-")
        } - folders_seen
        java = java_process(service)
        if new and java is not None:
            folders_seen |= new
            with contextlib.suppress(psutil.Error):
                java.kill()
            kills += 1
            session.say(f"kill {kills} of the JVM, {time.monotonic() - began:.0f} s after END")
        time.sleep(0.02)
    return kills, restarts, began


def _await_others(service: Service, uploads: list[Upload]) -> int:
    """Waits until all uploads are over, restarting the service if it ends. Returns the number of restarts."""
    restarts, deadline = 0, time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        if not service.is_alive:
            service.start()
            restarts += 1
        if all(state_of(service, upload.run) in OVER for upload in uploads):
            break
        time.sleep(0.2)
    return restarts


def stopped_jvm(session: Session) -> Iterator[Measurement]:
    """Sends SIGSTOP to the JVM during a run, and SIGCONT only if the service does not notice."""
    folder, account = session.new_folder("stopped-jvm"), Account()
    sales = session.sales("stopped-jvm", session.seed + 10)
    unnoticed, notice, recover, restarts = 0, list[float](), list[float](), 0
    times = session.pick(2, 1)
    with serving(folder) as service:
        for number in range(times):
            upload = Upload(service, folder / f"sent-{number}")
            upload.send_all(sales, CHUNK_ROWS)
            upload.await_processed()
            java = java_process(service)
            assert java is not None
            java.send_signal(signal.SIGSTOP)
            upload.end()
            seconds = seconds_until(lambda: not is_ready(service), _NOTICE_SECONDS + 20)
            if seconds is None:
                unnoticed += 1
                java.send_signal(signal.SIGCONT)
            notice.append(seconds if seconds is not None else _NOTICE_SECONDS + 20)
            began = time.monotonic()
            while time.monotonic() - began < ANSWER_SECONDS:
                if not service.is_alive:
                    with contextlib.suppress(psutil.Error):
                        java.kill()  # of the process that ended; its supervisor ends the whole group
                    service.start()
                    restarts += 1
                if state_of(service, upload.run) in OVER and is_ready(service):
                    break
                time.sleep(0.1)
            recover.append(time.monotonic() - began)
            answers = fetch(service, upload.run, folder / f"answers-{number}")
            account.add(sales, upload.status(), answers)
            session.say(f"noticed after {notice[-1]:.1f} s, answered {recover[-1]:.1f} s later")
    yield Measurement(
        "JVM stopped by SIGSTOP",
        f"{times} times, each in the final step of a run",
        session.seed,
        (
            none_of("not noticed", unnoticed),
            at_most("to notice", max(notice), _NOTICE_SECONDS, "s"),
            at_most("to recover", max(recover), _RECOVER_SECONDS, "s"),
            *account.figures(),
        ),
        notes=(f"the service ended and was started again {restarts} times",),
    )
