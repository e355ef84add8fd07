"""Watching a run: every change is reported, also over a connection that breaks."""

import json
import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kopitiam.cli.app import app
from kopitiam.client.calls import Calls
from kopitiam.client.http import Transport
from kopitiam.contracts.errors import RunFailed, RunNotFound, ServiceError
from waiting import PATIENCE_SECONDS

RUN = "0123456789abcdef"


def event(state: str, chunks: int = 0) -> bytes:
    stage = {"0": {"role": "filter", "expected": 4, "processed": chunks, "rows": 0, "rows_out": 0}}
    table = {
        "columns": ["store_id"],
        "chunks": 4,
        "rows": 8,
        "expected_chunks": 4,
        "expected_rows": 8,
        "sealed": True,
        "rejected": 0,
        "processed": chunks,
    }
    status = {
        "run": RUN,
        "label": "",
        "state": state,
        "questions": {},
        "created_at": 1.7e9,
        "finished_at": None,
        "tables": {"stores": table},
        "stages": {"filter_year": stage},
        "rejected": 0,
        "unmatched": None,
        "unmatched_by_table": None,
        "answers": None,
        "error": "3 rows too many" if state == "failed" else None,
    }
    return f"event: status\ndata: {json.dumps(status)}\n\n".encode()


class Telling:
    """Answers each call for events with the next of its scripts, and then hangs up."""

    def __init__(self, *scripts: bytes | int) -> None:
        self.scripts = list(scripts)
        self.calls: list[tuple[str, str | None]] = []


@contextmanager
def telling(*scripts: bytes | int) -> Iterator[tuple[str, Telling]]:
    told = Telling(*scripts)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.calls.append((self.path, self.headers.get("Authorization")))
            script = told.scripts.pop(0)
            self.send_response(script if isinstance(script, int) else 200)
            self.end_headers()
            self.wfile.write(
                script if isinstance(script, bytes) else b'{"error": "not_found", "message": "no"}'
            )

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def states(url: str) -> list[str]:
    with closing(Transport(url, "secret", sleep=lambda _: None)) as transport:
        return [status.state for status in Calls(transport).watch(RUN)]


def test_every_change_of_a_run_is_yielded_until_it_is_over():
    with telling(event("open") + b": still here\n\n" + event("sealed") + event("done")) as (url, told):
        assert states(url) == ["open", "sealed", "done"]
    assert told.calls == [(f"/api/v1/runs/{RUN}/events", "Bearer secret")]


def test_a_broken_stream_of_events_is_reconnected():
    with telling(event("open"), 503, b"event: status\nda", event("sealed") + event("ended")) as (url, told):
        assert states(url) == ["open", "sealed", "ended"]
    assert len(told.calls) == 4


def test_events_that_are_no_status_are_a_service_error():
    with telling(b"data: {}\n\n") as (url, _), pytest.raises(ServiceError, match="not those of a Kopitiam"):
        states(url)


def test_watching_an_unknown_run_raises_not_found():
    with telling(404) as (url, _), pytest.raises(RunNotFound):
        states(url)
    with pytest.raises(RunNotFound, match="an id has"):
        next(Calls(Transport("http://127.0.0.1:1")).watch("../nodes"))


def follow(url: str, *flags: str):
    return CliRunner().invoke(app, ["status", RUN, "--watch", "--server", url, *flags])


def test_in_a_pipe_the_command_prints_a_line_for_each_change():
    with telling(event("sealed", 1) + event("done", 4)) as (url, _):
        done = follow(url)
    assert (done.exit_code, done.output.splitlines()) == (
        0,
        [
            f"run {RUN}: 1 of 4 chunks processed · sealed",
            f"run {RUN}: 4 of 4 chunks processed · done",
        ],
    )


def test_on_a_terminal_the_live_view_changes_and_stays_at_the_end():
    with telling(event("sealed", 1) + event("done", 4)) as (url, _):
        controller, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (30, 60))
        command = [Path(sys.executable).with_name("kopi"), "status", RUN, "--watch", "--server", url]
        environment = os.environ | {"TERM": "xterm", "NO_COLOR": "1"}
        done = subprocess.run(
            command,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        os.close(terminal)
        shown = os.read(controller, 65_536).decode()
        os.close(controller)
    assert done.returncode == 0, shown
    assert "1 of 4 chunks" in shown
    assert shown.index("1 of 4 chunks") < shown.rindex("4 of 4 chunks")
    assert f"run {RUN}: done" in shown
    assert shown.rstrip().endswith("\x1b[?25h")  # the cursor is given back


def test_for_scripts_each_change_is_a_line_of_json():
    with telling(event("open") + event("done")) as (url, _):
        done = follow(url, "--json")
    assert [json.loads(line)["state"] for line in done.output.splitlines()] == ["open", "done"]


def test_a_run_that_fails_ends_the_command_with_its_reason():
    with telling(event("failed")) as (url, _):
        done = follow(url)
    assert isinstance(done.exception, RunFailed)
    assert "3 rows too many" in str(done.exception)
