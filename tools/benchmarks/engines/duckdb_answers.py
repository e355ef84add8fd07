"""The five answers by DuckDB: one typed scan of the transactions, one of the items, money in DECIMAL.

python duckdb_answers.py DATA OUT
"""

import sys
from pathlib import Path

import duckdb

COLUMNS = {
    "transactions": {
        "transaction_id": "VARCHAR",
        "store_id": "INTEGER",
        "payment_method_id": "VARCHAR",
        "voucher_id": "VARCHAR",
        "user_id": "DOUBLE",  # written as `17272.0`; whole numbers are exact up to 2^53
        "original_amount": "VARCHAR",
        "discount_applied": "VARCHAR",
        "final_amount": "DECIMAL(18, 4)",
        "created_at": "TIMESTAMP",
    },
    "transaction_items": {
        "transaction_id": "VARCHAR",
        "item_id": "INTEGER",
        "quantity": "INTEGER",
        "unit_price": "VARCHAR",
        "subtotal": "DECIMAL(18, 4)",
        "created_at": "TIMESTAMP",
    },
    "users": {"user_id": "BIGINT", "gender": "VARCHAR", "birthdate": "DATE", "registered_at": "VARCHAR"},
    "stores": {
        "store_id": "INTEGER",
        "store_name": "VARCHAR",
        "street": "VARCHAR",
        "postal_code": "VARCHAR",
        "city": "VARCHAR",
        "state": "VARCHAR",
        "latitude": "VARCHAR",
        "longitude": "VARCHAR",
    },
    "menu_items": {
        "item_id": "INTEGER",
        "item_name": "VARCHAR",
        "category": "VARCHAR",
        "price": "VARCHAR",
        "is_seasonal": "VARCHAR",
        "available_from": "VARCHAR",
        "available_to": "VARCHAR",
    },
}

# Only large purchases keep their id: the other millions of them would fill memory for nothing.
PURCHASES = """
CREATE TEMP TABLE purchases AS
SELECT store_id, user_id::BIGINT AS user_id, final_amount, created_at,
       created_at::TIME BETWEEN TIME '06:00:00' AND TIME '23:00:00' AS in_opening_hours,
       CASE WHEN in_opening_hours AND final_amount >= 75 THEN transaction_id END AS large_transaction_id
FROM transactions
WHERE created_at >= TIMESTAMP '2024-01-01' AND created_at < TIMESTAMP '2026-01-01'
"""

MONTHLY_SALES = """
CREATE TEMP TABLE monthly_sales AS
SELECT date_trunc('month', created_at) AS month, item_id,
       sum(quantity) AS sellings_qty, sum(subtotal) AS profit_sum
FROM transaction_items
WHERE created_at >= TIMESTAMP '2024-01-01' AND created_at < TIMESTAMP '2026-01-01'
GROUP BY ALL
"""

# Four decimals come out of DECIMAL(_, 4); the reference form keeps the first and no zeros past it.
AMOUNT_TEXT = """
CREATE TEMP MACRO amount_text(amount) AS
left(amount::VARCHAR, -3) || rtrim(right(amount::VARCHAR, 3), '0')
"""

LARGE_PURCHASES = """
SELECT large_transaction_id AS transaction_id, amount_text(final_amount) AS final_amount
FROM purchases
WHERE large_transaction_id IS NOT NULL
ORDER BY large_transaction_id, purchases.final_amount
"""

BEST_PRODUCTS = """
SELECT strftime(month, '%Y-%m') AS year_month_created_at,
       coalesce(item_name, item_id::VARCHAR) AS item_name, {shown} AS {measure}
FROM monthly_sales LEFT JOIN menu_items USING (item_id)
QUALIFY row_number() OVER (PARTITION BY month ORDER BY monthly_sales.{measure} DESC, item_id) = 1
ORDER BY month
"""

TPV_BY_STORE = """
WITH sums AS (
    SELECT year(created_at) || '-H' || if(month(created_at) <= 6, 1, 2) AS year_half_created_at,
           store_id, sum(final_amount) AS amount
    FROM purchases WHERE in_opening_hours GROUP BY ALL
)
SELECT year_half_created_at, coalesce(store_name, store_id::VARCHAR) AS store_name, amount_text(amount) AS tpv
FROM sums LEFT JOIN stores USING (store_id)
ORDER BY 1, 2, store_id
"""

TOP_CUSTOMERS = """
WITH counts AS (
    SELECT store_id, user_id, count(*) AS purchases
    FROM purchases WHERE user_id IS NOT NULL GROUP BY ALL
), top AS (
    SELECT store_id, user_id FROM counts
    QUALIFY row_number() OVER (PARTITION BY store_id ORDER BY purchases DESC, user_id) <= 3
)
SELECT coalesce(store_name, store_id::VARCHAR) AS store_name, birthdate
FROM top LEFT JOIN stores USING (store_id) LEFT JOIN users USING (user_id)
ORDER BY 1, 2 NULLS FIRST, user_id
"""


def answer(data: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect()
    con.execute("SET preserve_insertion_order = false")
    for table, columns in COLUMNS.items():
        con.execute(
            f"CREATE TEMP VIEW {table} AS FROM read_csv('{data}/*{table}/{table}*.csv', "
            f"columns = {columns}, header = true, delim = ',', auto_detect = false)"
        )
    for statement in (AMOUNT_TEXT, PURCHASES, MONTHLY_SALES):
        con.execute(statement)
    answers = {
        "1": LARGE_PURCHASES,
        "2_1": BEST_PRODUCTS.format(measure="sellings_qty", shown="sellings_qty"),
        "2_2": BEST_PRODUCTS.format(measure="profit_sum", shown="amount_text(profit_sum)"),
        "3": TPV_BY_STORE,
        "4": TOP_CUSTOMERS,
    }
    for name, query in answers.items():
        con.execute(f"COPY ({query}) TO '{out}/results_query_{name}.csv' (HEADER)")


if __name__ == "__main__":
    answer(*map(Path, sys.argv[1:3]))
