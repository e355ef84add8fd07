"""Names of any length and script: cut to a width, printable, isolated from the text beside them."""

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopitiam.results.names import ELLIPSIS, MOST_SHOWN, fitted, isolated, printable, text_width

FSI, PDI = "\u2068", "\u2069"
ANY = st.text(max_size=300)


@given(ANY)
def test_any_printable_text_is_valid_in_xml(text):
    read = ElementTree.fromstring(f"<a>{ElementTree.tostring(element(printable(text)), 'unicode')}</a>")
    assert read[0].text in (printable(text), None)


def element(text):
    made = ElementTree.Element("b")
    made.text = text
    return made


@given(ANY, st.floats(30, 400))
def test_a_fitted_text_is_a_prefix_within_the_width(text, room):
    shown = fitted(text, room)
    assert text_width(shown) <= room + 0.01
    assert len(shown) <= MOST_SHOWN
    if shown != printable(text):
        assert shown.endswith(ELLIPSIS)
        assert printable(text).startswith(shown.removesuffix(ELLIPSIS))


def test_a_short_name_is_not_cut():
    assert fitted("G Coffee @ Kampung Changkat", 220) == "G Coffee @ Kampung Changkat"


@pytest.mark.parametrize("letter", ["x", "W", "\u0301", "\u200b", "店", "م"])
def test_a_name_of_1024_characters_is_shortened_whatever_they_are(letter):
    assert len(fitted(letter * 1024, 220)) <= MOST_SHOWN


@pytest.mark.parametrize("cluster", ["e\u0301", "👩\u200d👩\u200d👧"])
def test_accents_and_joined_emoji_are_not_split(cluster):
    for room in range(20, 120, 3):
        kept = fitted(cluster * 40, room).removesuffix(ELLIPSIS)
        assert len(kept) % len(cluster) == 0


def depth_after(text):
    """The number of open isolates at the end; fails if one is closed that was not opened."""
    depth = 0
    for character in text:
        depth += (character in "\u2066\u2067\u2068") - (character == PDI)
        assert depth >= 0
    return depth


@given(st.text(st.sampled_from("aא\u2066\u2067\u2068\u2069\u202e\u200f 1"), max_size=30))
def test_isolates_are_balanced_whatever_a_name_has(text):
    name = isolated(text)
    assert depth_after(name) == 0
    if not text.isascii():
        assert (name[0], name[-1]) == (FSI, PDI)
        inside = name[1:-1]
        assert depth_after(inside) == 0


def test_plain_ascii_needs_no_isolates():
    assert isolated("G Coffee @ PJS8") == "G Coffee @ PJS8"


def test_control_characters_are_replaced_and_line_ends_are_blanks():
    assert printable("North\nHall\x00\x08") == "North Hall\ufffd\ufffd"
    assert not any(unicodedata.category(c) == "Cc" for c in printable("".join(map(chr, range(0xA0)))))
