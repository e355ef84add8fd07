"""The reliability harness: runs faults against the real product, measures, and writes docs/reliability.md."""
