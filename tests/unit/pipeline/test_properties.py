"""Settings in the spelling of Java's properties files."""

import pytest

from kopitiam.spark.session import as_properties


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("spark.master", "spark://127.0.0.1:7077", "spark.master=spark://127.0.0.1:7077"),
        ("spark.x", "a b = c # d", "spark.x=a b = c # d"),
        ("spark.x", "C:\\temp", "spark.x=C:\\\\temp"),
        ("spark.x", "two\nlines", "spark.x=two\\nlines"),
        ("spark.odd key:", "", "spark.odd\\ key\\:="),
    ],
)
def test_what_has_a_meaning_there_is_escaped(name, value, line):
    assert as_properties({name: value}) == f"{line}\n"


def test_every_setting_has_a_line():
    assert as_properties({"a": "1", "b": "2"}) == "a=1\nb=2\n"
    assert as_properties({}) == ""
