"""Questions: the public layout, the expression language, definitions and the built-in catalog.

Definitions are values. Nothing here reads data, uses Spark or draws charts.
"""
