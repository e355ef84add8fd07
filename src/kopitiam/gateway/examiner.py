"""One examiner process: orders come as JSON lines on standard input, findings go out the same way."""

import os
import resource

from kopitiam.system.worker_processes import Message, serve_orders

MEMORY_BYTES = 512 << 20
SECONDS = 30  # for one body

os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # reserves no address space ahead

from kopitiam.gateway.examination import Order, examine  # noqa: E402


def main() -> None:
    serve_orders(handle, seconds=SECONDS, limit=resource.RLIMIT_AS, memory_bytes=MEMORY_BYTES)


def handle(order: Message) -> Message:
    return examine(Order(**order)).to_dict()


if __name__ == "__main__":
    main()
