"""The nodes and services of `kopi cluster` on one machine, as detached processes."""
