"""The independent check: DuckDB reads the same CSV files and computes the answers without Spark.

It shares only contracts and question definitions with the code that it checks.
"""

from kopitiam.verification.answers import expected_answers
from kopitiam.verification.check import CheckReport, verify

__all__ = ["CheckReport", "expected_answers", "verify"]
