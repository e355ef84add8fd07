"""An independent check of answers: DuckDB reads the same CSV files and computes the answers its own way."""

from kopitiam.verification.answers import expected_answers
from kopitiam.verification.check import verify
from kopitiam.verification.report import Check, Figure, Report

__all__ = ["Check", "Figure", "Report", "expected_answers", "verify"]
