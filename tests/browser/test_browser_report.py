"""The report when it is printed."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext
from prepared_runs import write_done_run

from acceptance.services import Service
from made_answers import MadeAnswers, small_answers

PAPER = {"width": 688, "height": 1000}  # A4 without its margins, at 96 dots to the inch
CUT = """() => [...document.querySelectorAll("body *")].filter(element => {
    const { right } = element.getBoundingClientRect();
    const page = element.closest("svg")?.getBoundingClientRect().right ?? innerWidth;
    const hides = element instanceof HTMLElement && getComputedStyle(element).overflowX !== "visible";
    return right > page + 1 || (hides && element.scrollWidth > element.clientWidth + 1);
}).map(element => element.outerHTML.slice(0, 200))"""
INK = """() => [...document.querySelectorAll("body, h1, h2, p, td, .chart text")].map(element => {
    const { color, fill } = getComputedStyle(element);
    return element instanceof SVGElement ? fill : color;
})"""
GROUND = "() => getComputedStyle(document.body).backgroundColor"


def brightness(colour: str) -> float:
    return sum(map(float, re.findall(r"[\d.]+", colour)[:3])) / 3 / 255


@pytest.fixture
def answers() -> MadeAnswers:
    """Answers with two years of products and the longest names."""
    made = small_answers(store="G Coffee @ Kampung Changkat and Beyond", item="Iced Caramel Macchiato")
    months = [f"{year}-{month:02d}" for year in (2024, 2025) for month in range(1, 13)]
    best = [(month, 1, "Iced Caramel Macchiato", 123_456, True) for month in months]
    return MadeAnswers(made.tables | {"2_1": best})


def test_the_report_is_printed_whole_and_on_white(
    context: BrowserContext, service: Service, answers: MadeAnswers, tmp_path: Path
) -> None:
    run = write_done_run(service.home, "Printed", answers)
    report = tmp_path / "report.html"
    report.write_bytes(service.http.get(f"/api/v1/runs/{run}/results/report.html").content)
    page = context.new_page()
    page.set_viewport_size(PAPER)
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(report.as_uri())
    assert page.locator(".chart").count() == 5
    assert page.evaluate(CUT) == []
    assert brightness(page.evaluate(GROUND)) == 1
    assert max(map(brightness, page.evaluate(INK))) < 0.6
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= len(answers.tables)
