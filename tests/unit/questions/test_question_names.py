"""Only definitions contain names of questions: code, pages and styles do not.

Text constants of the code are searched, not comments.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kopitiam
from kopitiam.questions.question_set import QuestionSet

PACKAGE = Path(kopitiam.__file__).parent
MAY_KNOW = ("questions",)
CATALOG = QuestionSet.of_catalog()
NAMED_FILTERS = {"filter_year", "filter_hour", "filter_amount"}
GENERAL = {"server_results", *(f"check_{table}" for table in CATALOG.tables), *NAMED_FILTERS}


def names_of_questions() -> set[str]:
    """Names that identify a question anywhere; a single digit does so only as a key."""
    names = {name for name in CATALOG.by_name if not name.isdigit()}
    names |= set(CATALOG.stages.roles) - GENERAL
    for question in CATALOG.questions:
        names |= {question.title, question.file_name("csv"), question.file_stem}
        names |= {measure.name for measure in question.measures} - {"purchases"}
        names |= {key.name for key in question.keys if key.name.endswith("_created_at")}
    return names


NAMES = names_of_questions()
PATTERN = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, sorted(NAMES)))}|Q[1-4](?:\.[12]|[ab])?)(?!\w)")
DIGITS = {name for name in CATALOG.by_name if name.isdigit()}


def modules(suffix: str) -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob(f"*{suffix}")):
        if path.relative_to(PACKAGE).parts[0] not in MAY_KNOW:
            yield path


def texts(tree: ast.AST) -> Iterator[tuple[ast.Constant, bool]]:
    """Text constants outside docstrings, and whether each is a key of a dictionary, index or comparison."""
    keys = {
        id(part)
        for node in ast.walk(tree)
        for part in (
            node.keys
            if isinstance(node, ast.Dict)
            else [node.slice]
            if isinstance(node, ast.Subscript)
            else node.comparators
            if isinstance(node, ast.Compare)
            else []
        )
    }
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node, id(node) in keys


def test_no_module_names_a_question() -> None:
    names_found = []
    for path in modules(".py"):
        for constant, is_key in texts(ast.parse(path.read_text(encoding="utf-8"))):
            if PATTERN.search(constant.value) or (is_key and constant.value in DIGITS):
                names_found.append(f"{path.relative_to(PACKAGE)}:{constant.lineno} {constant.value!r}")
    assert names_found == []


def test_no_page_names_a_question() -> None:
    names_found = []
    for suffix in (".js", ".html", ".jinja", ".css", ".json"):
        for path in modules(suffix):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if match := PATTERN.search(line):
                    names_found.append(f"{path.relative_to(PACKAGE)}:{number} {match[0]}")
    assert names_found == []


def test_the_search_finds_names_of_questions() -> None:
    code = 'x = {"3": 1}; y = a["2_1"]; z = b == "4"; help = "Least, of Q1"; v = f"{n}/results_query_3.csv"'
    hits = [
        c.value
        for c, is_key in texts(ast.parse(code))
        if PATTERN.search(c.value) or (is_key and c.value in DIGITS)
    ]
    assert sorted(hits) == ["/results_query_3.csv", "2_1", "3", "4", "Least, of Q1"]
