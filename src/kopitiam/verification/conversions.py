"""Text to exact values, as DuckDB macros that give NULL for a cell that is not what it should be."""

CONVERSIONS = r"""
CREATE MACRO as_id(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*0*\d{1,17}(\.0*)?[ \t]*') THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_count(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*-?\d+[ \t]*') THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_instant(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d')
    THEN TRY_CAST(cell AS TIMESTAMP) END;

-- a date stays text: its order is the same, and DuckDB prints early years its own way
CREATE MACRO as_date(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d') AND TRY_CAST(cell AS DATE) IS NOT NULL THEN cell END;

-- DuckDB's cast rounds `7.500005e1`, so the digits of a number with an exponent are moved by hand
CREATE MACRO ten_thousandths(sign, digits, zeros) AS
    CAST(CASE WHEN digits = '' THEN '0'
              WHEN zeros >= 0 AND length(digits) + zeros <= 18 THEN sign || digits || repeat('0', zeros)
         END AS DECIMAL(18, 0));

CREATE MACRO parts_as_money(parts) AS
    ten_thousandths(
        parts.sign,
        trim(parts.whole || parts.fraction, '0'),
        4 + CAST(parts.exponent AS BIGINT) - length(parts.fraction)
            + length(parts.whole || parts.fraction) - length(rtrim(parts.whole || parts.fraction, '0'))
    ) * 0.0001;

CREATE MACRO with_exponent_as_money(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?0*\d{1,9}[ \t]*')
    THEN parts_as_money(regexp_extract(
        cell, '([-+]?)(\d*)\.?(\d*)[eE]([-+]?\d+)', ['sign', 'whole', 'fraction', 'exponent'])) END;

CREATE MACRO as_money(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?(\d+\.?|\d*\.\d{1,4}0*)[ \t]*')
    THEN TRY_CAST(cell AS DECIMAL(18, 4)) ELSE CAST(with_exponent_as_money(cell) AS DECIMAL(18, 4)) END;

CREATE MACRO money_as_text(amount) AS
    regexp_replace(CAST(amount AS VARCHAR), '0{1,3}$', '');
"""
