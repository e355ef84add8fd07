"""Definitions of questions compiled to Spark: filters, aggregators, maximizers and joiners.

Everything here is `DataFrame -> DataFrame` or text of Spark SQL: no session, no reads, no writes, no actions.
"""
