"""Benchmarks: Kopitiam and other engines on the same files, in turns, in one run."""
