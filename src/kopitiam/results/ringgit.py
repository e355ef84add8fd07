"""Amounts as people read them: `RM 12,055,387.76`. Answer files keep the plain form of their contract."""

from decimal import Decimal

_LEAST_DECIMALS = 2


def ringgit(amount: Decimal | str) -> str:
    """Exact: no decimal is rounded away, and two are always shown."""
    number = Decimal(amount)
    whole, _, decimals = f"{number.copy_abs():f}".partition(".")
    decimals = decimals.rstrip("0").ljust(_LEAST_DECIMALS, "0")
    return f"{'-' if number < 0 else ''}RM {int(whole):,}.{decimals}"
