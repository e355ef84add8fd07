"""Seeded data sets in the layout and spelling of the real chain's exports, at any scale."""

from kopitiam.synthetic.generator import Generated, generate

__all__ = ["Generated", "generate"]
