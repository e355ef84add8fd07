"""Runs faults against the real product, measures what happens, and writes docs/reliability.md."""
