"""Questions: the public layout, the expression language, definitions and the built-in catalog.

Definitions are values. Nothing here reads data, uses Spark or draws charts.
"""

import logging

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # a refusal is an error, not a log line
