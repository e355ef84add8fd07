"""Spark's settings as a properties file: the way to tell a JVM what nobody else may see on a command line."""

from collections.abc import Mapping

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_ESCAPED_IN_KEYS = str.maketrans({" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"})


def as_properties(conf: Mapping[str, str]) -> str:
    """In Java's own spelling, where a backslash or a line's end has a meaning."""
    return "".join(f"{_key(name)}={value.translate(_ESCAPED)}\n" for name, value in conf.items())


def _key(name: str) -> str:
    return name.translate(_ESCAPED).translate(_ESCAPED_IN_KEYS)
