"""Numbers as ranges of consecutive ones, for comparison with the ranges of the registry."""

from collections.abc import Iterable


def spans(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """`1, 2, 3, 7` becomes `(1, 3), (7, 7)`."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
