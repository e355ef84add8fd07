"""One renderer for all tests of charts: its engine starts once."""

from collections.abc import Iterator

import pytest

from kopitiam.results.charts.rendering import Renderer, open_renderer


@pytest.fixture(scope="session")
def renderer() -> Iterator[Renderer]:
    with open_renderer() as started:
        yield started
