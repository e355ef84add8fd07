"""One painter for all tests of charts: its engine starts once."""

from collections.abc import Iterator

import pytest

from kopitiam.results.charts.painter import Painter, painting


@pytest.fixture(scope="session")
def painter() -> Iterator[Painter]:
    with painting() as started:
        yield started
