"""Finds, starts, tunes and stops Java and Spark. Knows nothing about sales."""
