"""Sentences about what was inferred from an export, for people to read before it is sent."""

import re
from collections.abc import Iterable, Iterator, Mapping

from kopitiam.client.export_files import COMPRESSIONS, ExportFile
from kopitiam.questions.layout import LAYOUT

_SEPARATOR_NAMES = {";": "semicolons", "\t": "tabs"}
_MONTH = re.compile(r"_(\d{4})(0[1-9]|1[0-2])\.csv")


def notes_on_names(files: Mapping[str, Iterable[ExportFile]]) -> Iterator[str]:
    every = [file for own in files.values() for file in own]
    if flat := [file.shown for file in every if file.member is None and "/" not in file.shown]:
        yield f"files without a folder of their table are taken by their names: {_some(flat)}"
    if renamed := [f for f in every if not any(f.shown.endswith(f.name + end) for end in COMPRESSIONS)]:
        yield f"{renamed[0].shown} is read as {renamed[0].name}{_others(len(renamed) - 1)}"


def notes_on_headers(separators: Mapping[str, str], other_case: list[str]) -> Iterator[str]:
    """`separators` by file, of those without commas; `other_case`: files with columns in other letters."""
    for separator in sorted(set(separators.values())):
        files = [file for file, own in separators.items() if own == separator]
        yield f"fields are separated by {_SEPARATOR_NAMES[separator]}: {_some(files)}"
    if other_case:
        yield f"columns are known by their names in any case of letters: {_some(other_case)}"


def notes_on_months(files: Mapping[str, Iterable[ExportFile]]) -> Iterator[str]:
    """Say which months have no file, between the first and the last month of all monthly tables."""
    months = {
        table: {month for file in own if (month := month_of(file.name)) is not None}
        for table, own in files.items()
        if LAYOUT[table].is_fact
    }
    monthly = {table: own for table, own in months.items() if own}
    every = [month for own in monthly.values() for month in own]
    for table, own in monthly.items():
        if missing := [month for month in range(min(every), max(every) + 1) if month not in own]:
            yield f"{table}: no file for {_spans(missing)}"


def month_of(name: str) -> int | None:
    """Return the month of a file such as `users_202401.csv`, counted from the year 0."""
    match = _MONTH.search(name)
    return match and int(match[1]) * 12 + int(match[2]) - 1


def _spans(months: list[int]) -> str:
    """`2024-02, 2024-05 to 2024-07`."""
    spans: list[list[int]] = []
    for month in months:
        if spans and spans[-1][-1] == month - 1:
            spans[-1][1:] = [month]
        else:
            spans.append([month])
    return ", ".join(" to ".join(f"{m // 12}-{m % 12 + 1:02}" for m in span) for span in spans)


def _some(names: Iterable[str]) -> str:
    first, *others = names
    return first + _others(len(others))


def _others(count: int) -> str:
    return f", and {count} more" if count else ""
