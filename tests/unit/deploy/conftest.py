"""Keeps settings of the developer's environment out of the tested deployments."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_own_settings(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("KOPI_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
