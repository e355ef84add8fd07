"""Text to exact values, as DuckDB macros that give NULL for a cell that is not what it should be."""

CONVERSIONS = r"""
CREATE MACRO as_text(cell) AS
    CASE WHEN length(cell) <= 1024 THEN cell END;

CREATE MACRO as_boolean(cell) AS
    CASE WHEN lower(cell) IN ('true', '1') THEN TRUE WHEN lower(cell) IN ('false', '0') THEN FALSE END;

CREATE MACRO as_id(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*\d{1,17}(\.0{0,15})?[ \t]*')
    THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_count(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?\d{1,17}(\.0{0,15})?[ \t]*')
    THEN TRY_CAST(cell AS BIGINT) END;

CREATE MACRO as_money(cell) AS
    CASE WHEN regexp_full_match(cell, '[ \t]*[-+]?(\d{1,14}(\.\d{0,4}0{0,12})?|\.\d{1,4}0{0,12})[ \t]*')
    THEN TRY_CAST(cell AS DECIMAL(18, 4)) END;

-- there is no year 0, but DuckDB would take it for 1 BC
CREATE MACRO as_instant(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d[ T]([01]\d|2[0-3]):[0-5]\d:[0-5]\d') AND cell >= '0001'
    THEN TRY_CAST(cell AS TIMESTAMP) END;

-- a date stays text: its order is the same, and DuckDB prints early years its own way
CREATE MACRO as_date(cell) AS
    CASE WHEN regexp_full_match(cell, '\d{4}-\d\d-\d\d') AND cell >= '0001'
          AND TRY_CAST(cell AS DATE) IS NOT NULL
    THEN cell END;

CREATE MACRO money_as_text(amount) AS
    regexp_replace(CAST(amount AS VARCHAR), '0{1,3}$', '');
"""
