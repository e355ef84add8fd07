"""The main module of an examiner process: orders come as JSON lines on standard input, findings go to
standard output. The environment is set before Arrow is loaded, so this cannot be part of `examination`.
"""

import os
import resource

from kopitiam.system.worker_processes import Message, serve_requests

MEMORY_BYTES = 512 << 20
SECONDS = 30  # per body

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # other pools reserve address space, which is bounded

from kopitiam.gateway.examination import Order, examine  # noqa: E402


def main() -> None:
    serve_requests(handle, seconds=SECONDS, limit=resource.RLIMIT_AS, memory_bytes=MEMORY_BYTES)


def handle(order: Message) -> Message:
    return examine(Order(**order)).to_dict()


if __name__ == "__main__":
    main()
