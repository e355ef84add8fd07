"""Answers at rest and their forms: CSV, JSON, Parquet, xlsx, charts and the report."""
