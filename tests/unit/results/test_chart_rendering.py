"""SVG of charts: safe for any names, and the same on every machine."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from drawn_charts import SVG, Chart
from kopitiam.results.charts.colours import NAMES, colour, colour_variable
from kopitiam.results.charts.drawing import Drawing, draw
from kopitiam.results.charts.rendering import ATTRIBUTES, SHAPES, STYLE, clean_svg, standalone_svg
from made_answers import small_answers

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "a]]>&amp;<![CDATA[<!DOCTYPE x>",
    "@0",
    "@99999",
    "\u202eright to left\u200f 12\u2069\u2069",
    "x" * 1024,
    "W" * 900,
    "☕👩\u200d👩\u200d👧🍩" * 100,
    "North\nHall\x00\x08\x1b[31m",
    "مقهى شاه عالم 12",
    "url(javascript:alert(1))",
]
ON_ROOT = {
    "class",
    "viewBox",
    "role",
    "width",
    "height",
    "aria-label",
    "font-family",
    "font-size",
    "fill",
    "d",
}


def drawn(answers, name="3"):
    drawing = draw(answers, answers.question_set.by_name[name])
    assert isinstance(drawing, Drawing)
    return drawing


def require_closed(svg):
    for element in ElementTree.fromstring(svg).iter():
        tag = element.tag.removeprefix(SVG)
        assert tag in SHAPES | {"svg", "title"}
        assert set(element.attrib) <= ATTRIBUTES | ON_ROOT
        for name, value in element.attrib.items():
            if name != "aria-label":
                assert not re.search(r"url|javascript|[<>&\\]", value), (name, value)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("question", ["2_1", "3", "4"])
def test_a_hostile_name_is_text_and_nothing_else(renderer, name, question):
    svg = renderer.svg(drawn(small_answers(store=name, item=name), question))
    require_closed(svg)
    chart = Chart(svg)
    assert len(chart.marks) == len(small_answers().tables[question]), "no bar is lost"
    assert max(mark.width for mark in chart.marks) > 200, "nor pushed out"
    if len(name) < 20 and name.isprintable():
        assert any(name in word for word in chart.words)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_figure_beside_a_name_is_complete_and_outside_its_isolate(renderer, name):
    chart = Chart(renderer.svg(drawn(small_answers(store=name))))
    labels = [text.text for text in chart.texts if text.text.endswith(" · RM 12,055,387.76")]
    assert len(labels) == 1
    before = labels[0].removesuffix(" · RM 12,055,387.76")
    assert before.isascii() or (before[0], before[-1]) == ("\u2068", "\u2069")


def test_a_long_name_is_shortened_and_complete_on_hover(renderer):
    name = "G Coffee @ " + "Alam " * 180
    chart = Chart(renderer.svg(drawn(small_answers(store=name), "4")))
    [label] = [text for text in chart.texts if text.text.startswith("G Coffee") and text.anchor == "end"]
    assert label.text.endswith("…")
    assert label.whole == name
    assert len(label.text) < 40


def test_no_name_reaches_the_engine():
    drawing = drawn(small_answers(store="Secret store", item="Secret item"), "2_1")
    assert "Secret item" in " ".join(drawing.texts)
    assert "Secret" not in json.dumps(drawing.specification)


def test_unlisted_elements_and_attributes_are_dropped():
    engine = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="0 0 10 10" onload="x()"><script>x()</script><style>*{}</style>'
        '<a href="x"><path d="M0,0Z"/></a>'
        '<g onclick="x()" transform="translate(1,2)"><path d="M0,0Z" fill="url(#a)" stroke="var(--c1)"/>'
        '<image href="http://x"/><foreignObject/><text fill="var(--text)" style="x">@0</text>'
        '<path fill="var(--evil)" d="M0,0Z"/></g></svg>'
    )
    svg = clean_svg(engine, ["<b>"], "what it is")
    require_closed(svg)
    assert "<text" in svg
    assert "&lt;b&gt;" in svg
    assert f'stroke="{colour("c1")}"' in svg
    for gone in ("script", "style", "href", "http://x", "onload", "onclick", "evil"):
        assert gone not in svg.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("size", ["", "0 0 1", "0 0 a b", "0 0 1 1' onload='x"])
def test_an_svg_without_a_size_is_refused(size):
    with pytest.raises(ValueError, match="without a size"):
        clean_svg(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}"/>', [], "")


def test_colours_are_classes_with_the_light_values_beside_them(renderer):
    svg = renderer.svg(drawn(small_answers()))
    assert "var(" not in svg
    for name, value in re.findall(r'class="f-(\w+)"[^>]* fill="([^"]+)"', svg):
        assert value == colour(name)
    file = standalone_svg(svg)
    assert ElementTree.fromstring(file)[0].text == STYLE
    for name in NAMES:
        assert f"--chart-{name}: {colour(name, 'dark')};" in STYLE
        assert colour_variable(name) not in svg


def test_the_same_drawing_gives_the_same_bytes_and_images(renderer):
    drawing = drawn(small_answers())
    svgs = {renderer.svg(drawing) for _ in range(2)}
    assert len(svgs) == 1
    svg = svgs.pop()
    for form, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF-")):
        first, second = (renderer.image(svg, form) for _ in range(2))
        assert first == second
        assert first.startswith(begin)


RENDER = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from made_answers import small_answers
from kopitiam.results.charts.drawing import draw
from kopitiam.results.charts.rendering import open_renderer
answers = small_answers(store="مقهى 咖啡店 ☕", item="Café Łódź Ωμέγα")
with open_renderer() as renderer:
    for name in answers.tables:
        svg = renderer.svg(draw(answers, answers.question_set.by_name[name]))
        print(hashlib.sha256(svg.encode()).hexdigest())
    latin = renderer.svg(draw(answers, answers.question_set.by_name["2_1"]))
    print(hashlib.sha256(renderer.image(latin, "png")).hexdigest())
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or not Path("/usr/share/fonts").exists(),
    reason="hides the fonts of this machine, which takes root on Linux",
)
@pytest.mark.slow
def test_charts_do_not_depend_on_the_fonts_of_the_machine():
    here = [sys.executable, "-c", RENDER, str(Path(__file__).parents[2])]
    fontless = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /usr/share/fonts && exec "$@"',
        "sh",
        *here,
    ]
    with_fonts, without = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for command in (here, fontless)
    )
    assert with_fonts == without
    assert len(with_fonts) == 6


def contrast(one, other):
    def light(shade):
        parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lighter, darker = sorted((light(one), light(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_bars_stand_out_from_the_ground(theme):
    ground = colour("ground", theme)
    assert contrast(colour("text", theme), ground) >= 7
    assert contrast(colour("soft", theme), ground) >= 4.5
    for name in ("bar", *(name for name in NAMES if name.startswith("c"))):
        assert contrast(colour(name, theme), ground) >= 2
    steps = [contrast(colour(f"h{n}", theme), ground) for n in range(7)]
    assert steps == sorted(steps)
    categories = [colour(name, theme) for name in NAMES if name.startswith("c")]
    assert len(set(categories)) == 10


def test_an_svg_is_small(renderer):
    svg = standalone_svg(renderer.svg(drawn(small_answers(), "2_1")))
    assert len(svg) < 12_000
