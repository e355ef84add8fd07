"""The worker process of the renderer: turns drawings into SVG, PNG and PDF with Vega in V8.

Memory and time are bounded. It loads nothing from the network, and exits after some minutes without work.
"""

import base64
import resource
from typing import Any

import vl_convert

from kopitiam.results.charts.rendering import clean_svg
from kopitiam.system.worker_processes import Message, serve_requests

MEMORY_BYTES = 512 << 20  # beyond what the engine takes to start
SECONDS = 20  # for one chart
IDLE_SECONDS = 300.0
PNG_SCALE = 2.0
_WARM_UP: dict[str, Any] = {"data": {"values": [{"a": 1}]}, "mark": "point", "encoding": {}}


def main() -> None:
    vl_convert.vegalite_to_svg(_WARM_UP, allowed_base_urls=[])  # memory taken so far is below the limit
    serve_requests(
        handle,
        seconds=SECONDS,
        limit=resource.RLIMIT_DATA,  # V8 reserves far more address space than it uses
        memory_bytes=MEMORY_BYTES,
        idle_seconds=IDLE_SECONDS,
    )


def handle(order: Message) -> Message:
    """`{"specification", "texts", "description"}` gives `{"svg"}`, `{"svg", "form"}` gives `{"bytes"}`."""
    try:
        match order:
            case {"specification": specification, "texts": texts, "description": description}:
                drawn = vl_convert.vegalite_to_svg(specification, allowed_base_urls=[])
                return {"svg": clean_svg(drawn, texts, description)}
            case {"svg": svg, "form": "png"}:
                content = vl_convert.svg_to_png(svg, scale=PNG_SCALE)
            case {"svg": svg, "form": "pdf"}:
                content = vl_convert.svg_to_pdf(svg)
            case _:
                return {"error": "not an order"}
    except ValueError as error:
        return {"error": str(error).partition("\n")[0][:400]}
    return {"bytes": base64.b64encode(content).decode()}


if __name__ == "__main__":
    main()
