"""Answers at rest and their forms: reference CSV, JSON and Parquet."""
