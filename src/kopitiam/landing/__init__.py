"""Accepted rows at rest: chunk files, rejected rows, removal of a run's files, and the registry's mark."""
