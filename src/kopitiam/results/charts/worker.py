"""One chart worker: a process that turns drawings into SVG, PNG and PDF with Vega in V8.

It has bounded memory and time, loads nothing from anywhere, and ends when nothing was drawn for a while.
"""

import base64
import resource
from typing import Any

import vl_convert

from kopitiam.results.charts.picture import finished
from kopitiam.system.worker_processes import Message, serve_orders

MEMORY_BYTES = 512 << 20  # beyond what the engine takes by itself
SECONDS = 20  # for one picture
IDLE_SECONDS = 300.0
PNG_SCALE = 2.0
_WARM_UP: dict[str, Any] = {"data": {"values": [{"a": 1}]}, "mark": "point", "encoding": {}}


def main() -> None:
    vl_convert.vegalite_to_svg(_WARM_UP, allowed_base_urls=[])  # so that the bound is above what it needs
    serve_orders(
        handle,
        seconds=SECONDS,
        limit=resource.RLIMIT_DATA,  # V8 reserves far more address space than it uses
        memory_bytes=MEMORY_BYTES,
        idle_seconds=IDLE_SECONDS,
    )


def handle(order: Message) -> Message:
    """`{"specification", "texts", "description"}` gives a picture, `{"picture", "form"}` its bytes."""
    try:
        match order:
            case {"specification": specification, "texts": texts, "description": description}:
                drawn = vl_convert.vegalite_to_svg(specification, allowed_base_urls=[])
                return {"picture": finished(drawn, texts, description)}
            case {"picture": picture, "form": "png"}:
                content = vl_convert.svg_to_png(picture, scale=PNG_SCALE)
            case {"picture": picture, "form": "pdf"}:
                content = vl_convert.svg_to_pdf(picture)
            case _:
                return {"flaw": "not an order"}
    except ValueError as error:
        return {"flaw": str(error).partition("\n")[0][:400]}
    return {"bytes": base64.b64encode(content).decode()}


if __name__ == "__main__":
    main()
