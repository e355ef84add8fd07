"""Compiles definitions of questions to Spark: filters, aggregators, maximizers and joiners.

All functions return `DataFrame -> DataFrame` or Spark SQL text: no session, no reads, no writes, no actions.
"""
