"""docs/questions.md says what the program does."""

from kopitiam.questions.grammar import FUNCTIONS
from kopitiam.questions.layout import LAYOUT
from kopitiam.questions.validation import KEYS
from tools.questions_page import PAGE, page


def test_the_page_is_the_one_that_the_program_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make questions-page"


def test_every_key_function_table_and_column_is_on_the_page() -> None:
    text = page()
    names = [*KEYS, *FUNCTIONS, *LAYOUT, *(name for table in LAYOUT.values() for name in table.by_name)]
    assert [name for name in names if f"`{name}" not in text] == []
    assert "{" not in text.replace("{ ", "").replace("{{", "").replace("rank = {", "")
