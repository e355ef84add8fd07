"""What the columns of a question cost on the wire.

Bytes for each row, as clients encode a full chunk of synthetic sales at full size; printed by
`python -m tools.benchmarks.column_bytes`. Other data costs more or less: these figures tell which columns are
dear.
"""

from kopitiam.questions.definitions import Question

BYTES_PER_ROW: dict[str, dict[str, float]] = {
    "transactions": {
        "transaction_id": 19.8,
        "store_id": 0.4,
        "payment_method_id": 0.3,
        "voucher_id": 0.1,
        "user_id": 2.8,
        "original_amount": 0.8,
        "discount_applied": 0.2,
        "final_amount": 1.1,
        "created_at": 2.7,
    },
    "transaction_items": {
        "transaction_id": 10.1,
        "item_id": 0.4,
        "quantity": 0.2,
        "unit_price": 0.4,
        "subtotal": 0.6,
        "created_at": 1.4,
    },
    "users": {
        "user_id": 2.9,
        "gender": 0.1,
        "birthdate": 2.6,
        "registered_at": 6.3,
    },
}


def bytes_per_row(question: Question) -> dict[str, float]:
    """By table, what one row of it costs; tables of a few hundred rows cost nothing worth naming."""
    return {
        table: round(sum(BYTES_PER_ROW[table][column] for column in columns), 1)
        for table, columns in question.reads.items()
        if table in BYTES_PER_ROW
    }
