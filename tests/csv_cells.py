"""Cells of CSV files: each kind judged by hand, and strategies for sound cells, near misses and others."""

import re
from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import strategies as st

from kopitiam.contracts.tables import Kind

BAD = object()  # the judgement of a cell that rejects its row


def _digits(text, most):
    return text.isascii() and text.isdigit() and len(text) <= most


def _sign_and_rest(text):
    return (-1 if text[0] == "-" else 1, text[1:]) if text[:1] in ("-", "+") else (1, text)


def judge_whole(text):
    whole, _, zeros = text.strip(" \t").partition(".")
    return int(whole) if _digits(whole, 17) and len(zeros) <= 15 and not zeros.strip("0") else BAD


def judge_signed(text):
    sign, rest = _sign_and_rest(text.strip(" \t"))
    value = judge_whole(rest) if rest == rest.strip(" \t") else BAD
    return value if value is BAD else sign * value


def judge_money(text):
    text = text.strip(" \t")
    _, rest = _sign_and_rest(text)
    whole, _, fraction = rest.partition(".")
    is_whole_sound = _digits(whole, 14) or (whole == "" and fraction != "")
    is_fraction_sound = fraction == "" or (_digits(fraction, 16) and not fraction[4:].strip("0"))
    return int(Decimal(text) * 10_000) if is_whole_sound and is_fraction_sound else BAD


def judge_instant(text):
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}", text):
        return BAD
    try:
        return datetime(*map(int, re.split("[- T:]", text)), tzinfo=UTC)
    except ValueError:
        return BAD


def judge_boolean(text):
    truth = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    return truth if truth is not None and text.isascii() else BAD


def judge_date(text):
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return BAD
    try:
        return date(*map(int, text.split("-")))
    except ValueError:
        return BAD


JUDGES = {
    Kind.TEXT: lambda text: text,
    Kind.ID: judge_whole,
    Kind.COUNT: judge_signed,
    Kind.MONEY: judge_money,
    Kind.INSTANT: judge_instant,
    Kind.DATE: judge_date,
    Kind.BOOLEAN: judge_boolean,
}


def judge(column, text):
    if text == "":
        return None if column.is_optional else BAD
    return JUDGES[column.kind](text)


# Cells: sound ones, near misses, and anything at all.

ANYTHING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBER_LIKE = st.text("0123456789.+-eE \t_٣", max_size=22)
NUMBERS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", " ", "\t "]),
    st.sampled_from(["", "", "+", "-"]),
    st.one_of(st.integers(0, 10**19), st.decimals(0, 10**15, places=4), st.sampled_from([".5", "7.", "007"])),
    st.integers(0, 17).map("0".__mul__),
    st.sampled_from(["", "", " ", "e2"]),
)
DATES = st.builds(
    "{:04}-{:02}-{:02}".format, st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32)
) | st.dates().map(str)
CLOCKS = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 24), st.integers(0, 60), st.integers(0, 60))
INSTANTS = st.builds("{}{}{}".format, DATES, st.sampled_from([" ", "T", "  ", ""]), CLOCKS)
CELLS = ANYTHING | NUMBER_LIKE | NUMBERS | DATES | INSTANTS
GOOD_CELLS = {
    Kind.TEXT: ANYTHING.filter(bool),
    Kind.ID: st.integers(0, 10**17 - 1).map(str),
    Kind.COUNT: st.integers(-(10**17) + 1, 10**17 - 1).map(str),
    Kind.MONEY: st.integers(-(10**18) + 1, 10**18 - 1).map(lambda units: str(Decimal(units).scaleb(-4))),
    Kind.INSTANT: st.datetimes(datetime(1, 1, 1)).map(lambda time: time.isoformat(" ", "seconds")),
    Kind.DATE: st.dates().map(str),
    Kind.BOOLEAN: st.sampled_from(["True", "False", "true", "FALSE", "1", "0"]),
}


def good_cells(column):
    good = GOOD_CELLS[column.kind].filter(lambda cell: judge(column, cell) is not BAD)
    return good | st.just("") if column.is_optional else good
