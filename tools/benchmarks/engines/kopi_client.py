"""Submits a folder with Kopitiam's client: `kopi_client.py DATA URL FIGURES [OUT]`.

With OUT it waits for the answers and downloads them; without OUT it cancels the run when all chunks are
durable. Writes the seconds of each step, summed over threads, and its own peak memory to FIGURES.
"""

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kopitiam import Client
from kopitiam.client import upload
from kopitiam.client.calls import Calls
from kopitiam.client.run_handle import RunHandle
from kopitiam.client.submitted_run import raise_if_failed
from kopitiam.contracts.runs import RunState
from kopitiam.intake.normal_form import NormalForm

POLL_SECONDS = 0.05  # shorter than the client's own interval, to measure short waits

spent: Counter[str] = Counter()
lock = threading.Lock()


def timed(step: str, work: Callable[..., Any]) -> Callable[..., Any]:
    def timing(*arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        try:
            return work(*arguments, **named)
        finally:
            with lock:
                spent[step] += time.perf_counter() - begun

    return timing


def main(data: Path, server: str, figures: Path, out: Path | None = None) -> None:
    NormalForm.normalize = timed("parse", NormalForm.normalize)  # type: ignore[method-assign]
    upload.encode = timed("encode", upload.encode)
    Calls.put_chunk = timed("send", Calls.put_chunk)  # type: ignore[method-assign]
    with Client(server) as client:
        run: RunHandle = timed("upload", client.submit)(data, label="benchmark")
        if out is None:
            run.cancel()
        else:
            timed("END to answers", wait_until_done)(run)
            timed("download", run.download)(out)
    # Unlike ru_maxrss, VmHWM does not include the memory of the parent before exec.
    peak_line = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    peak = int(peak_line[1]) * 1024 if peak_line else 0
    figures.write_text(json.dumps({"run": run.id, "peak_bytes": peak, "seconds": spent}))


def wait_until_done(run: RunHandle) -> None:
    while (status := run.status()).state != RunState.DONE:
        raise_if_failed(status)
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(Path, sys.argv[3:]))
