"""One examiner process: orders come as JSON lines on standard input, findings go out the same way.

It leaves when its input closes, so it never outlives its gateway.
"""

import json
import os
import resource
import signal
import sys
from pathlib import Path

MEMORY_BYTES = 512 << 20
SECONDS = 30  # for one body

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # reserves no address space ahead

from kopitiam.gateway.examination import Order, examine  # noqa: E402


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the gateway to handle
    _bound_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints stays out of the answers
    for line in sys.stdin:
        signal.alarm(SECONDS)  # unhandled, it ends the process, whatever it is busy with
        finding = examine(Order(**json.loads(line)))
        signal.alarm(0)
        answers.write(json.dumps(finding.to_dict()) + "\n")
        answers.flush()


def _bound_memory() -> None:
    """Linux tells what is in use and keeps to the bound; elsewhere only sizes and rows are limited."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        in_use = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY_BYTES, in_use + MEMORY_BYTES))


if __name__ == "__main__":
    main()
