"""Reading keeps a few blocks in memory, never a whole table."""

import subprocess
import sys

import pytest

from kopitiam.synthetic import generate

MOST_MB = 600
READING = """
import os, re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kopitiam.client.chunks import in_order, read_chunks
from kopitiam.client.folder import open_folder
from kopitiam.questions.question_set import QuestionSet
from kopitiam.landing.chunks import encode
from kopitiam.system.files import replace_file

folder, landing = open_folder(Path(sys.argv[1]), QuestionSet.of_catalog().tables), Path(sys.argv[2])

def store(chunk):
    replace_file(landing / chunk.table.name / f"{chunk.number}.parquet", encode(chunk.table, chunk.rows))
    return chunk.rows.num_rows

cores = os.cpu_count() or 1
with ThreadPoolExecutor(cores) as parsers, ThreadPoolExecutor(cores) as writers:
    for name in folder.tables:
        chunks = read_chunks(folder, folder.tables[name], parsers, print)
        print(name, sum(in_order(writers, store, chunks, 4)))
# Unlike ru_maxrss, this does not begin with what the parent process holds.
print("peak", int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.long
def test_reading_a_large_folder_stays_below_600_mb(tmp_path):
    generated = generate(tmp_path / "data", scale=0.1, seed=3)
    done = subprocess.run(
        [sys.executable, "-c", READING, tmp_path / "data", tmp_path / "landing"],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    figures = dict(line.split() for line in done.stdout.splitlines())
    assert int(figures["transactions"]) == generated.rows["transactions"] == 1_460_000
    assert int(figures["transaction_items"]) == generated.rows["transaction_items"]
    assert int(figures["peak"]) < MOST_MB
