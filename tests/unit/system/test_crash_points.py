"""Crash points: documented, passed in the code, and armed by the environment."""

import re
from pathlib import Path

import pytest

from kopitiam.contracts.errors import ConfigError
from kopitiam.system.crash_points import POINTS, armed_point

ROOT = Path(__file__).parents[3]


def test_the_protocol_page_lists_exactly_the_points_of_the_code():
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    table = text.split("<!-- crash points")[1].split("<!-- end of crash points -->")[0]

    assert dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", table, re.MULTILINE)) == POINTS


def test_every_point_is_passed_somewhere_in_the_code():
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))

    assert set(re.findall(r'crash_point\("([\w.]+)"\)', source)) == set(POINTS)


@pytest.mark.parametrize(
    ("text", "armed"),
    [("chunk.named", ("chunk.named", 1)), ("chunk.named:3", ("chunk.named", 3)), ("", None)],
)
def test_a_point_is_armed_for_the_nth_time_that_it_is_passed(text: str, armed: tuple[str, int] | None):
    assert armed_point({"KOPI_CRASH_AT": text}) == armed


@pytest.mark.parametrize("text", ["chunk", "chunk.named:x", "chunk.named:-1"])
def test_an_unknown_point_is_refused(text: str):
    with pytest.raises(ConfigError, match="KOPI_CRASH_AT"):
        armed_point({"KOPI_CRASH_AT": text})
