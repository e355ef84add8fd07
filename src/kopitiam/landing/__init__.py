"""Accepted rows at rest: where chunk files lie, how they are written once, and the rows set aside."""
