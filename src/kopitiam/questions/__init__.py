"""What can be asked: the public layout, the expression language, definitions and the built-in catalog.

Definitions are values. Nothing here reads data, talks to Spark or knows how an answer is drawn.
"""
