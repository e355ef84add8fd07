"""Names and transaction ids that are hard to read, quote, sort or show. All of them are valid text cells."""

from kopitiam.synthetic.shapes import Texts

LONGEST_TEXT = 1_024  # characters, the bound of a text cell

HOSTILE = (
    "=1+1",
    "+SUM(A1:A9)",
    "-2+3",
    "@cmd",
    '=HYPERLINK("http://localhost","click")',
    'He said "kopi"',
    '"',
    '""',
    "comma, here",
    "two\nlines",
    "two\r\nlines",
    "ends with a newline\n",
    " blanks around ",
    "\ttab\tstop\t",
    "'quoted'",
    "back\\slash\\",
    "NULL",
    "null",
    "NaN",
    "0",
    "1.0",
    "10:00:00",
    "\N{RIGHT-TO-LEFT OVERRIDE}repo\N{POP DIRECTIONAL FORMATTING}",
    "\N{RIGHT-TO-LEFT MARK}كوبي\N{LEFT-TO-RIGHT MARK}",
    "קפה",
    "咖啡店",
    "コピティアム",
    "☕\N{ZERO WIDTH JOINER}🥐",
    "e\N{COMBINING ACUTE ACCENT}",
    "é",
    "\N{ZERO WIDTH NO-BREAK SPACE}mark first",
    "\N{LINE SEPARATOR}\N{NO-BREAK SPACE}",
    "\x1b[31mred\x1b[0m\a\b\x7f",
    "<script>alert('kopi')</script>&amp;",
    "{{ 7 * 7 }} %s ${HOME} `id`",
    "; DROP TABLE stores; --",
    "../../etc/passwd",
    "\N{MATHEMATICAL BOLD CAPITAL K}" * LONGEST_TEXT,  # four bytes each
    '"' * LONGEST_TEXT,  # twice as long between quotes
    "\n" * LONGEST_TEXT,
    "-" * LONGEST_TEXT,
)
_LONG_EVERY = 10  # so that 10,000 names stay below 2 MB
_PAIRS = 2  # names come twice: two ids of the same name


def wild_name(texts: Texts, kind: str, index: int) -> str:
    """The name of a store or item; the same for two neighbours, so that names tie as well."""
    plain = f"{kind} {index // _PAIRS}"
    match texts:
        case Texts.PLAIN:
            return plain
        case Texts.LONG:
            return _long(plain) if index % _LONG_EVERY == 0 else plain
        case Texts.HOSTILE:
            turn, place = divmod(index, len(HOSTILE))
            return (HOSTILE[place] + (f" {turn}" if turn else ""))[:LONGEST_TEXT]


def transaction_id(texts: Texts, index: int) -> str | None:
    """A text to use in place of a UUID, for some transactions."""
    every = 100 if texts is Texts.LONG else 4
    if texts is Texts.PLAIN or index % every:
        return None
    return wild_name(texts, "sale", index // every)


def _long(plain: str) -> str:
    return plain + " " + "é" * (LONGEST_TEXT - len(plain) - 1)
