"""Settings as the text of a Java properties file."""

import pytest

from kopitiam.spark.settings import as_properties


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
def test_special_characters_are_escaped(name, value, line):
    assert as_properties({name: value}) == f"{line}\n"


def test_every_setting_has_a_line():
    assert as_properties({"a": "1", "b": "2"}) == "a=1\nb=2\n"
    assert as_properties({}) == ""
