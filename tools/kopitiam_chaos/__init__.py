"""Fault injection for `kopi chaos`: kills and freezes nodes of a running fleet by a seeded plan, while
clients submit runs whose answers must be exact. No part of a running fleet."""
