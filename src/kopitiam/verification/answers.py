"""The five answers, computed by DuckDB from the rows that count, in the order and spelling of their files.

Each answer is a table `answer_<name>`: `position` (the row's place in the file, from 1), `cells` (its texts),
and the ids behind them.
"""

from decimal import Decimal
from pathlib import Path

import duckdb

from kopitiam.contracts.questions import ANSWERS, Questions
from kopitiam.verification.rows import load_tables

NAMES = """
CREATE VIEW store_names AS SELECT store, min(name) AS name FROM stores GROUP BY store;
CREATE VIEW item_names AS SELECT item, min(name) AS name FROM menu_items GROUP BY item;
CREATE VIEW birthdates AS SELECT customer, min(born) AS born FROM users GROUP BY customer;
"""

LARGE_PURCHASES = """
CREATE TABLE answer_1 AS
SELECT row_number() OVER (ORDER BY sale, amount) AS position, [sale, money_as_text(amount)] AS cells
FROM transactions
WHERE year(instant) BETWEEN $first_year AND $last_year
  AND CAST(instant AS TIME) BETWEEN CAST($opening AS TIME) AND CAST($closing AS TIME)
  AND amount >= CAST($min_amount AS DECIMAL(18, 4))
"""

PRODUCTS = """
CREATE TABLE products AS
SELECT printf('%04d-%02d', year, month) AS month, item, pieces, profit
FROM (
    SELECT year(instant) AS year, month(instant) AS month, item, sum(pieces) AS pieces, sum(amount) AS profit
    FROM transaction_items
    WHERE year(instant) BETWEEN $first_year AND $last_year
    GROUP BY ALL
)
"""

BEST_PRODUCTS = """
CREATE TABLE answer_2_1 AS
SELECT row_number() OVER (ORDER BY month) AS position, item,
       [month, coalesce(name, CAST(item AS VARCHAR)), CAST(pieces AS VARCHAR)] AS cells
FROM (FROM products QUALIFY row_number() OVER (PARTITION BY month ORDER BY pieces DESC, item) = 1)
LEFT JOIN item_names USING (item);

CREATE TABLE answer_2_2 AS
SELECT row_number() OVER (ORDER BY month) AS position, item,
       [month, coalesce(name, CAST(item AS VARCHAR)), money_as_text(profit)] AS cells
FROM (FROM products QUALIFY row_number() OVER (PARTITION BY month ORDER BY profit DESC, item) = 1)
LEFT JOIN item_names USING (item);
"""

PAYMENT_VALUE = """
CREATE TABLE answer_3 AS
WITH totals AS (
    SELECT year(instant) AS year, CASE WHEN month(instant) <= 6 THEN 1 ELSE 2 END AS part, store,
           sum(amount) AS total
    FROM transactions
    WHERE year(instant) BETWEEN $first_year AND $last_year
      AND CAST(instant AS TIME) BETWEEN CAST($opening AS TIME) AND CAST($closing AS TIME)
    GROUP BY ALL
), named AS (
    SELECT printf('%04d-H%d', year, part) AS half, store, total,
           coalesce(name, CAST(store AS VARCHAR)) AS shown
    FROM totals LEFT JOIN store_names USING (store)
)
SELECT row_number() OVER (ORDER BY half, shown, store) AS position, store,
       [half, shown, money_as_text(total)] AS cells
FROM named
"""

TOP_CUSTOMERS = """
CREATE TABLE answer_4 AS
WITH purchases AS (
    SELECT store, customer, count(*) AS times
    FROM transactions
    WHERE year(instant) BETWEEN $first_year AND $last_year AND customer IS NOT NULL
    GROUP BY ALL
), best AS (
    FROM purchases
    QUALIFY row_number() OVER (PARTITION BY store ORDER BY times DESC, customer) <= $top
), named AS (
    SELECT store, customer, coalesce(name, CAST(store AS VARCHAR)) AS shown, coalesce(born, '') AS born
    FROM best LEFT JOIN store_names USING (store) LEFT JOIN birthdates USING (customer)
)
SELECT row_number() OVER (ORDER BY shown, born, customer, store) AS position, store, customer,
       [shown, born] AS cells
FROM named
"""

UNMATCHED: dict[str, str] = {
    "stores": """
        SELECT count(*) FROM (SELECT store FROM answer_3 UNION SELECT store FROM answer_4)
        ANTI JOIN stores USING (store)
    """,
    "menu_items": """
        SELECT count(*) FROM (SELECT item FROM answer_2_1 UNION SELECT item FROM answer_2_2)
        ANTI JOIN menu_items USING (item)
    """,
    "users": "SELECT count(*) FROM (SELECT DISTINCT customer FROM answer_4) ANTI JOIN users USING (customer)",
}


def answer_questions(database: duckdb.DuckDBPyConnection, questions: Questions) -> None:
    years = {"first_year": questions.first_year, "last_year": questions.last_year}
    hours = {"opening": questions.opening, "closing": questions.closing}
    least = {"min_amount": format(Decimal(questions.min_amount), "f")}
    database.execute(NAMES)
    database.execute(LARGE_PURCHASES, years | hours | least)
    database.execute(PRODUCTS, years)
    database.execute(BEST_PRODUCTS)
    database.execute(PAYMENT_VALUE, years | hours)
    database.execute(TOP_CUSTOMERS, years | {"top": questions.top})


def count_unmatched(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """How many ids of the answers are missing from their table."""
    return {table: database.sql(query).fetchall()[0][0] for table, query in UNMATCHED.items()}


def expected_answers(data: Path, questions: Questions) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each answer as they must stand in its CSV file."""
    with load_tables(data) as tables:
        answer_questions(tables.database, questions)
        return {name: _rows_in_order(tables.database.table(f"answer_{name}")) for name in ANSWERS}


def _rows_in_order(answer: duckdb.DuckDBPyRelation) -> list[tuple[str, ...]]:
    return [tuple(cells) for (cells,) in answer.order("position").project("cells").fetchall()]
