"""What a check found, as values. How it is shown is decided elsewhere."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One answer file against the answer that its data give."""

    name: str
    file: str
    rows_expected: int
    rows_found: int
    differences: tuple[str, ...] = ()
    difference_count: int = 0

    @property
    def is_equal(self) -> bool:
        return self.difference_count == 0


@dataclass(frozen=True)
class Figure:
    """One figure of the summary against the same figure counted here."""

    name: str
    expected: int | str
    found: int | str

    @property
    def is_equal(self) -> bool:
        return self.expected == self.found

    def __str__(self) -> str:
        return f"{self.name}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Report:
    answers: tuple[Check, ...]
    accounting: tuple[Figure, ...] = ()

    @property
    def is_equal(self) -> bool:
        answers_are_equal = all(check.is_equal for check in self.answers)
        return answers_are_equal and all(figure.is_equal for figure in self.accounting)

    @property
    def differences(self) -> tuple[str, ...]:
        """Every difference that is shown, one line each."""
        in_answers = [line for check in self.answers for line in check.differences]
        in_accounting = [str(figure) for figure in self.accounting if not figure.is_equal]
        return (*in_answers, *in_accounting)
