"""Links and file names in the documentation exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PLACES = (ROOT, ROOT / "src" / "kopitiam", ROOT / "tools", ROOT / "docs", ROOT / "tests")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(
    r"`([\w@.-]+(?:/[\w@.-]+)+\.(?:py|toml|md|yaml|js|css|sh|service)|(?:tests|tools)/[\w./-]+)`"
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_file_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in LINK.findall(text):
        target, _, anchor = link.partition("#")
        if target.startswith(("http:", "https:")):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(link)
    broken += [name for name in FILE.findall(text) if not any((place / name).exists() for place in PLACES)]
    assert broken == []


def test_the_path_of_one_chunk_names_functions_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| `([\w.]+)` \|", text, re.MULTILINE)
    assert 10 < len(steps) <= 30
    for module, function in steps:
        source = (ROOT / "src" / "kopitiam" / module).read_text(encoding="utf-8")
        names = set(re.findall(r"^\s*(?:async )?(?:def|class) (\w+)", source, re.MULTILINE))
        assert set(function.split(".")) <= names, f"{module} has no {function}"
