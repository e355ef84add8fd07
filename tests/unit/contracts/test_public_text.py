"""Error texts for clients name no files of the service."""

import pytest

from kopitiam.contracts.public_text import without_paths

TEXTS = {
    "reading file file:///srv/my%20home/landing/run=x/chunk-00000.parquet. SQLSTATE: KD001": (
        "reading file …/chunk-00000.parquet. SQLSTATE: KD001"
    ),
    "[Errno 2] No such file or directory: '/srv/my home/x.parquet'": (
        "[Errno 2] No such file or directory: '…/x.parquet'"
    ),
    "Failed to open s3a://bucket/landing/x.parquet: denied": "Failed to open …/x.parquet: denied",
    "storage: /srv/kopitiam/landing/: read-only": "storage: …/landing: read-only",
    "(/srv/a/b,c)": "(…/b,c)",
}
KEPT = [
    "Content-Type text/csv: want application/vnd.apache.parquet or text/csv",
    "ask /api/v1/runs, with and/or without 10/12 at 5 /s",
    "transactions/transactions_202401.csv, line 3: not UTF-8 text",
    "see https://spark.apache.org/docs/latest/",
    "final_amount 'RM 5' is not an amount",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_path_becomes_its_last_part(text):
    assert without_paths(text) == TEXTS[text]


@pytest.mark.parametrize("text", KEPT)
def test_other_texts_stay_as_they_are(text):
    assert without_paths(text) == text
