"""Nothing of the environment of whoever runs the tests gets into a deployment."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("KOPI_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
