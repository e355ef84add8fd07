"""Measures the way from CSV text to encoded chunks, with the compiled parser and with Arrow alone.

    python -m tools.benchmarks.reading data [data ...] [--rounds 3]

CPU seconds for a million rows, the least of some rounds in which both take turns, on one thread.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from kopitiam.client.chunks import cut
from kopitiam.client.folder import InputFolder, open_folder
from kopitiam.contracts.tables import CHUNK_ROWS, Table
from kopitiam.intake.blocks import Block, find_separator, read_blocks, read_header
from kopitiam.intake.clean_blocks import Kernel, load_kernel
from kopitiam.intake.normal_form import NormalForm
from kopitiam.landing.chunks import encode
from kopitiam.questions.question_set import QuestionSet

MEASURED = ("transactions", "transaction_items", "users")
STEPS = ("cut into blocks", "normal form", "encode")
Figures = dict[str, float]


class Meter:
    """Adds up the CPU seconds of steps."""

    def __init__(self) -> None:
        self.seconds: Figures = defaultdict(float)
        self._since = time.process_time()

    def add(self, step: str) -> None:
        """Add the time since the last call to a step."""
        now = time.process_time()
        self.seconds[step] += now - self._since
        self._since = now


def blocks(folder: InputFolder, table: Table, kernel: Kernel | None) -> Iterator[tuple[NormalForm, Block]]:
    for file in folder.files[table.name]:
        separator = find_separator(file, table.schema.names)
        form = NormalForm(table, read_header(file, separator), file.shown, kernel)
        for block in read_blocks(file, separator=separator):
            yield form, block


def measure(folder: InputFolder, table: Table, kernel: Kernel | None) -> Figures:
    """CPU seconds of each step for a million rows, and the bytes of a row."""
    meter, size, rows = Meter(), 0, 0

    def parts() -> Iterator[pa.Table]:
        nonlocal rows
        for form, block in blocks(folder, table, kernel):
            meter.add("cut into blocks")
            part = form.normalize(block).rows
            meter.add("normal form")
            rows += part.num_rows
            yield part

    for chunk in cut(parts(), CHUNK_ROWS):
        size += len(encode(table, chunk))
        meter.add("encode")
    return {step: meter.seconds[step] / rows * 1e6 for step in STEPS} | {"bytes a row": size / rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    kernel = load_kernel()
    assert kernel is not None, "run kopi warm first"
    print("| data | table | parser | " + " | ".join((*STEPS, "bytes a row")) + " |")
    print("|" + "---|" * (len(STEPS) + 4))
    for data in arguments.data:
        folder = open_folder(data, QuestionSet.of_catalog().tables)
        for name in MEASURED:
            figures: dict[str, list[Figures]] = {"Arrow": [], "compiled": []}
            for _ in range(arguments.rounds):
                for parser_name, of_parser in figures.items():
                    used = kernel if parser_name == "compiled" else None
                    of_parser.append(measure(folder, folder.tables[name], used))
            for parser_name, of_parser in figures.items():
                least = [min(figure[step] for figure in of_parser) for step in (*STEPS, "bytes a row")]
                cells = " | ".join(f"{value:.2f}" for value in least)
                print(f"| {data.name} | {name} | {parser_name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
