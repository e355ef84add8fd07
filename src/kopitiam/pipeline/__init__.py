"""The data path on Spark: source, stream, batches, partials, compaction and the final step of a run."""
