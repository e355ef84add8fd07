"""Renders the result of a benchmark for the terminal: contenders, streaming and other parts, limits."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

MEGABYTE = 1_000_000


def render(result: dict[str, Any]) -> RenderableType:
    """Renders the whole result of `run_suite`, fresh or read back from JSON."""
    comparisons = [part for name in ("comparison", "wild", "sample") if (part := result[name])]
    parts: list[RenderableType] = [comparison_table(comparison) for comparison in comparisons]
    if streaming := result["streaming"]:
        parts += [streaming_table(streaming, result["scale"]), breakdown_table(streaming["breakdown"])]
    if result["clients"]:
        parts.append(clients_table(result["clients"]))
    if result["months"]:
        parts.append(months_table(result["months"]))
    if result["ingest"]:
        parts.append(ingest_table(result["ingest"]))
    parts += failures(comparisons)
    parts.append(limits_table(result["limits"]))
    return Group(*parts)


def comparison_table(comparison: dict[str, Any]) -> Table:
    rounds = comparison["rounds"]
    table = Table(title=f"{comparison['data']}, {rounds} round{'s' if rounds > 1 else ''} in turns")
    table.add_column("")
    for heading in ("median s", "min–max", f"× {comparison['reference']}", "CPU s", "peak MB", "agrees"):
        table.add_column(heading, justify="right")
    for standing in comparison["standings"]:
        table.add_row(
            standing["name"],
            _figure(standing["median_seconds"], ".2f"),
            f"{_figure(standing['min_seconds'], '.2f')}–{_figure(standing['max_seconds'], '.2f')}",
            _figure(standing["ratio"], ".2f"),
            _figure(standing["median_cpu_seconds"], ".2f"),
            f"{standing['peak_bytes'] / MEGABYTE:,.0f}",
            _agreement(standing),
        )
    return table


def ingest_table(ingest: dict[str, Any]) -> Table:
    """Seconds are summed over threads, so they add up to more than the wall time."""
    table = Table(title="ingest: client to durable, and where the time goes")
    total = sum(ingest["shares"].values())
    for heading in ("step", "thread seconds", "share"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for step, seconds in ingest["shares"].items():
        table.add_row(step, _figure(seconds, ".2f"), f"{seconds / total:.0%}" if total else "–")
    client, gateway = ingest["client_peak_bytes"] / MEGABYTE, ingest["gateway_peak_bytes"] / MEGABYTE
    table.caption = f"client {client:,.0f} MB at its peak; gateway with examiners {gateway:,.0f} MB"
    return table


def streaming_table(streaming: dict[str, Any], scale: float) -> Table:
    table = Table(title="streaming at the warm service")
    for heading in ("", "median", "max"):
        table.add_column(heading, justify="right" if heading else "left")
    waits, batches = streaming["end_to_answers"], streaming["batches"]
    for size, prefix in ((scale, ""), (scale / 10, "tenth_")):
        middle, longest = waits[f"{prefix}median_seconds"], max(waits[f"{prefix}seconds"])
        table.add_row(f"END to answers, scale {size:g}", f"{middle:.2f} s", f"{longest:.2f} s")
    costs = {"Spark's overhead per batch": "overhead", "registry commit per batch": "commit"}
    for name, key in costs.items():
        spread = batches[f"{key}_milliseconds"]
        table.add_row(name, *(f"{_figure(spread[kind], ',.0f')} ms" for kind in ("median", "max")))
    count = batches["overhead_milliseconds"]["count"]
    table.caption = f"{batches['count']} batches; triggerExecution minus addBatch of {count}"
    return table


def clients_table(clients: dict[str, Any]) -> Table:
    table = Table(title=f"clients at once, {clients['rows_of_a_client']:,} rows each, at the warm service")
    for heading in ("clients", "rows/s", "× one client"):
        table.add_column(heading, justify="right")
    for crowd in clients["crowds"]:
        figures = f"{crowd['rows_per_second']:,.0f}", f"{crowd['ratio']:.2f}"
        table.add_row(str(crowd["clients"]), *figures)
    return table


def months_table(months: dict[str, Any]) -> Table:
    table = Table(title="a data set that grows by a month, at the warm service")
    for heading in ("", "seconds", "CPU s", "share", "MB sent", "share"):
        table.add_column(heading, justify="right" if heading else "left")
    for step in months["steps"]:
        table.add_row(
            step["name"],
            f"{step['seconds']:.2f}",
            f"{step['cpu_seconds']:.2f}",
            f"{step['cpu_share']:.1%}",
            f"{step['bytes'] / MEGABYTE:,.2f}",
            "–" if step["byte_share"] is None else f"{step['byte_share']:.1%}",
        )
    return table


def breakdown_table(breakdown: dict[str, Any]) -> RenderableType:
    """Thread seconds by step, with the wall time below, since steps run in parallel."""
    table = Table(title="where the time of one warm submit goes")
    for heading in ("", "step", "thread seconds", "share"):
        table.add_column(heading, justify="right" if heading in {"thread seconds", "share"} else "left")
    parts: dict[str, dict[str, float]] = breakdown["thread_seconds"]
    total = sum(seconds for steps in parts.values() for seconds in steps.values())
    for part, steps in parts.items():
        for number, (step, seconds) in enumerate(steps.items()):
            share = f"{seconds / total:.0%}" if total else "–"
            table.add_row("" if number else part, step, f"{seconds:.2f}", share)
        table.add_section()
    clock = ", ".join(f"{part} {seconds:.2f}" for part, seconds in breakdown["parts"].items())
    cpu = ", ".join(f"{part} {seconds:.2f}" for part, seconds in breakdown["cpu_seconds"].items())
    overheads = f"{breakdown['batches_with_overhead']} of {breakdown['batches']}"
    return Group(
        table,
        Text(
            f"{total:.2f} thread-seconds: summed over all threads, waiting included; "
            f"Spark's overhead is known of {overheads} batches"
        ),
        Text(f"{breakdown['wall_seconds']:.2f} s of wall time: {clock}, the rest is Python's start"),
        Text(f"{sum(breakdown['cpu_seconds'].values()):.2f} CPU seconds: {cpu}"),
    )


def failures(comparisons: Iterable[dict[str, Any]]) -> list[Text]:
    """One line for each contender that failed or gave other answers."""
    lines = []
    for comparison in comparisons:
        for standing in comparison["standings"]:
            if standing["error"]:
                lines.append(Text(f"{standing['name']} failed: {standing['error']}", style="red"))
            elif standing["differing_files"]:
                files = ", ".join(standing["differing_files"])
                differs = f"{standing['name']} differs from {comparison['reference']} in {files}"
                lines.append(Text(differs, style="red"))
    return lines


def limits_table(limits: list[dict[str, Any]]) -> Table:
    table = Table(title="limits")
    table.add_column("")
    for heading in ("value", "limit", ""):
        table.add_column(heading, justify="right")
    for limit in limits:
        bound = f"{'≥' if limit['is_least'] else '≤'} {limit['limit']:g}"
        table.add_row(limit["name"], _figure(limit["value"], ".2f"), bound, _verdict(limit))
    return table


def _verdict(limit: dict[str, Any]) -> Text:
    if not limit["counts"]:
        return Text("information only", style="dim")
    return Text("pass", style="green") if limit["is_met"] else Text("miss", style="red")


def _agreement(standing: dict[str, Any]) -> Text:
    if standing["error"]:
        return Text("failed", style="red")
    if standing["agrees"] is None:
        return Text("–", style="dim")
    return Text("yes", style="green") if standing["agrees"] else Text("NO", style="red")


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
