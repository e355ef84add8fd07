"""Composition: how the parts become `analyze`, `serve`, a gateway, a pipeline or a monitor.

Only these modules choose adapters."""
