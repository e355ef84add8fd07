"""Money in integer units of a ten-thousandth of a ringgit, so that every sum is exact."""

from decimal import Decimal, InvalidOperation

DECIMALS = 4
UNITS = 10**DECIMALS
DIGITS = 18
_TOO_LARGE = 10 ** (DIGITS - DECIMALS)
_ONE_UNIT = Decimal(1).scaleb(-DECIMALS)


def to_units(text: str) -> int:
    """Parse a decimal number. Raises `ValueError` if it is none, too large, or has over four decimals."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None
    if not amount.is_finite():
        raise ValueError(f"{text!r} is not a finite number")
    if amount.copy_abs() >= _TOO_LARGE:
        raise ValueError(f"{text!r} is too large")
    rounded = amount.quantize(_ONE_UNIT)
    if rounded != amount:  # unlike arithmetic, a comparison uses every digit
        raise ValueError(f"{text!r} has more than {DECIMALS} decimals")
    return int(rounded * UNITS)


def to_text(units: int) -> str:
    """`750000` becomes `75.0`, `750750` becomes `75.075`: no trailing zeros past the first decimal."""
    whole, fraction = divmod(abs(units), UNITS)
    decimals = f"{fraction:0{DECIMALS}d}".rstrip("0") or "0"
    return f"{'-' if units < 0 else ''}{whole}.{decimals}"
