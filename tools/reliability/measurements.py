"""Measured figures of a fault, their targets, and the verdict. No I/O."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    MET = "met"
    MISSED = "**missed**"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Figure:
    """A measured value. `most` and `least` are its target; a figure without either is only reported."""

    name: str
    value: float
    unit: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool:
        return (self.most is None or self.value <= self.most) and (
            self.least is None or self.value >= self.least
        )

    @property
    def measured(self) -> str:
        return f"{self.name} {self._number(self.value)}"

    @property
    def target(self) -> str | None:
        """None for a figure that is only reported."""
        bounds = [
            f"{sign} {self._number(bound)}"
            for sign, bound in (("≥", self.least), ("≤", self.most))
            if bound is not None
        ]
        if self.most == self.least == self.value or (self.most == 0 and not self.unit):
            bounds = [self._number(self.most or 0)]
        return f"{self.name} {' and '.join(bounds)}" if bounds else None

    def _number(self, value: float) -> str:
        text = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
        return f"{text} {self.unit}".strip()


@dataclass(frozen=True)
class Measurement:
    """One row of the table. `error` says why the fault did not run to its end, which misses the target."""

    fault: str
    times: str
    seed: int
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    skipped: str | None = None
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if self.skipped is not None:
            return Verdict.NOT_MEASURED
        has_missed = self.error is not None or not all(figure.is_met for figure in self.figures)
        return Verdict.MISSED if has_missed else Verdict.MET

    @property
    def missed(self) -> tuple[str, ...]:
        """One text for each missed target; empty if all are met."""
        figures = tuple(
            f"{figure.measured}, target {figure.target}" for figure in self.figures if not figure.is_met
        )
        return figures + ((self.error,) if self.error else ())


def none_of(name: str, count: float) -> Figure:
    """A count whose target is zero."""
    return Figure(name, count, most=0)


def at_most(name: str, value: float, most: float, unit: str = "") -> Figure:
    return Figure(name, value, unit, most=most)


def at_least(name: str, value: float, least: float, unit: str = "") -> Figure:
    return Figure(name, value, unit, least=least)


def slope_per(points: list[tuple[float, float]], step: float = 1.0) -> float:
    """Slope of the least-squares line: growth of the second value per `step` of the first."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return 0.0
    return step * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
