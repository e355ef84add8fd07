"""Kopitiam's client, from CSVs to durable chunks at a gateway: `kopi_ingest.py DATA URL FIGURES`.

Writes to FIGURES what parsing, encoding and sending took, summed over threads, and its own peak memory.
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
from kopitiam.intake.normal_form import NormalForm

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


def main(data: Path, server: str, figures: Path) -> None:
    NormalForm.normalize = timed("parse", NormalForm.normalize)  # type: ignore[method-assign]
    upload.encode = timed("encode", upload.encode)
    Calls.put_chunk = timed("send", Calls.put_chunk)  # type: ignore[method-assign]
    with Client(server) as client:
        client.submit(data, label="ingest benchmark").cancel()
    # Unlike ru_maxrss, this does not begin with what the parent process holds.
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    peak = int(found[1]) * 1024 if found else 0
    figures.write_text(json.dumps({"peak_bytes": peak, **spent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
