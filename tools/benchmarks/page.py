"""Runs the benchmark and writes docs/benchmarks.md with its plots.

    python -m tools.benchmarks.page --scale 0.01 --scale 0.1 --scale 1 [--rounds 3] [--only PART ...]
    python -m tools.benchmarks.page             # writes the page again from docs/benchmarks.json

`docs/benchmarks.json` holds the newest result of each scale; a run replaces only the parts that it measured.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vl_convert

from tools.benchmarks.suite import run_suite

DOCS = Path(__file__).parents[2] / "docs"
RESULTS, PAGE, PLOTS = DOCS / "benchmarks.json", DOCS / "benchmarks.md", DOCS / "plots"
MEGABYTE = 1_000_000
SECONDS_SHOWN = ("duckdb", "polars", "pandas", "pyspark", "kopi", "service")
Results = dict[str, dict[str, Any]]

_HEAD = """\
# Benchmarks

`make bench-page` measures these figures and writes this page; `kopi bench` prints the same for one scale. All contenders run in
turns on the same files in one run, and all their answers agree byte for byte. Compare ratios within one run: seconds of different
runs depend on the machine and its other work. Scale 1 is 14.6 million transactions, 29 million items, 3.3 GB of CSV. CPU seconds
are those of all processes, for `kopi submit` those of the service too.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="a contender or part of kopi bench")
    parser.add_argument("--sample", type=Path, help="small data, for a comparison with a bare Spark session")
    arguments = parser.parse_args()
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    for scale in arguments.scale:
        result = run_suite(
            scale, 7, arguments.rounds, only=arguments.only, sample=arguments.sample, announce=_announce
        )
        results[f"{scale:g}"] = merged(results.get(f"{scale:g}", {}), result, datetime.now(UTC))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PLOTS.mkdir(exist_ok=True)
    for name, specification in plots(results).items():
        svg = vl_convert.vegalite_to_svg(specification, allowed_base_urls=[])
        (PLOTS / f"{name}.svg").write_text(svg + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def _announce(step: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {step}", flush=True)


def merged(old: dict[str, Any], new: dict[str, Any], moment: datetime) -> dict[str, Any]:
    """The new result; parts that it did not measure stay as they were. Each part has its own date."""
    measured = {name: part for name, part in new.items() if part is not None}
    dates = old.get("dates", {}) | dict.fromkeys(measured, f"{moment:%Y-%m-%d}")
    return {**new, **old, **measured, "dates": dates}


def page(results: Results) -> str:
    """The page in Markdown, largest scale first."""
    ordered = sorted(results.values(), key=lambda result: -result["scale"])
    text = _HEAD + f"\n{_plot('seconds', 'Seconds by contender and scale')}\n"
    for result in ordered:
        text += f"\n## Scale {result['scale']:g}\n"
        text += "".join(section for section in _sections(result))
    return text


def _sections(result: dict[str, Any]) -> list[str]:
    sections = [
        _comparison(result[name], title, result["dates"][name])
        for name, title in (
            ("comparison", "real profile"),
            ("wild", "wild profile"),
            ("sample", "real sample of 2,576 transactions"),
        )
        if result.get(name)
    ]
    if streaming := result.get("streaming"):
        sections.append(_streaming(streaming, result["scale"]))
    if clients := result.get("clients"):
        rows = [
            (crowd["clients"], f"{crowd['rows_per_second']:,.0f}", f"{crowd['ratio']:.2f}")
            for crowd in clients["crowds"]
        ]
        title = f"\n**Clients at once**, {clients['rows_of_a_client']:,} rows each, at a warm service:\n\n"
        sections.append(title + _table(("clients", "rows/s", "× one client"), rows))
    if months := result.get("months"):
        rows = [
            (
                step["name"],
                f"{step['seconds']:.1f}",
                f"{step['cpu_seconds']:.1f}",
                f"{step['cpu_share']:.1%}",
                f"{step['bytes'] / MEGABYTE:,.1f}",
            )
            for step in months["steps"]
        ]
        title = "\n**A data set that grows**, all 24 months and then the last of them, at a warm service:\n\n"
        sections.append(title + _table(("", "seconds", "CPU seconds", "share", "MB sent"), rows))
    limits = [
        (
            limit["name"],
            _number(limit["value"]),
            f"{'at least' if limit['is_least'] else 'at most'} {limit['limit']:g}",
            "met" if limit["is_met"] else "missed",
        )
        for limit in result["limits"]
        if limit["counts"]
    ]
    if limits:
        sections.append("\n**Limits:**\n\n" + _table(("figure", "value", "limit", ""), limits))
    return sections


def _comparison(comparison: dict[str, Any], title: str, date: str) -> str:
    rows = [
        (
            standing["name"],
            _number(standing["median_seconds"]),
            f"{_number(standing['min_seconds'])} to {_number(standing['max_seconds'])}",
            _number(standing["ratio"]),
            _number(standing["median_cpu_seconds"]),
            f"{standing['peak_bytes'] / MEGABYTE:,.0f}",
        )
        for standing in comparison["standings"]
    ]
    rounds = comparison["rounds"]
    head = f"\n**{title[0].upper()}{title[1:]}**, medians of {rounds} rounds, {date}:\n\n"
    return head + _table(
        ("", "seconds", "least to most", f"× {comparison['reference']}", "CPU seconds", "peak MB"), rows
    )


def _streaming(streaming: dict[str, Any], scale: float) -> str:
    waits, breakdown = streaming["end_to_answers"], streaming["breakdown"]
    cpu = breakdown["cpu_seconds"]
    text = (
        f"\nFrom the last END to the answers: {waits['median_seconds']:.1f} s, {waits['share']:.0%} of the whole submit, "
        f"{waits['ratio']:.2f} times as long as at scale {scale / 10:g}. A run had {breakdown['batches']} batches.\n"
        f"\n{_plot(f'cpu-{scale:g}', 'CPU seconds of one warm submit')}\n\n"
    )
    rows = [(part, f"{seconds:.1f}") for part, seconds in cpu.items()]
    return text + _table(("CPU of one warm submit", "seconds"), [*rows, ("all", f"{sum(cpu.values()):.1f}")])


def plots(results: Results) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by name."""
    seconds = [
        {
            "scale": f"{result['scale']:g}",
            "contender": standing["name"],
            "seconds": standing["median_seconds"],
        }
        for result in sorted(results.values(), key=lambda result: result["scale"])
        for standing in result["comparison"]["standings"]
        if standing["key"] in SECONDS_SHOWN and standing["median_seconds"]
    ]
    drawn = {"seconds": _bars(seconds, "seconds", "contender", "scale")}
    for scale, result in results.items():
        if streaming := result.get("streaming"):
            cpu = [
                {"part": part, "CPU seconds": spent}
                for part, spent in streaming["breakdown"]["cpu_seconds"].items()
            ]
            drawn[f"cpu-{scale}"] = _bars(cpu, "CPU seconds", "part")
    return drawn


def _bars(rows: list[dict[str, Any]], figure: str, name: str, panel: str | None = None) -> dict[str, Any]:
    """Horizontal bars, a panel with its own axis for each value of `panel`."""
    plot: dict[str, Any] = {
        "width": 520,
        "mark": "bar",
        "encoding": {
            "x": {"field": figure, "type": "quantitative"},
            "y": {"field": name, "type": "nominal", "sort": None, "title": None},
        },
    }
    if panel is None:
        return {"data": {"values": rows}, **plot}
    facet = {"row": {"field": panel, "type": "nominal", "sort": None}}
    return {
        "data": {"values": rows},
        "facet": facet,
        "spec": plot,
        "resolve": {"scale": {"x": "independent"}},
    }


def _plot(name: str, title: str) -> str:
    return f"![{title}](plots/{name}.svg)"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _table(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    main()
