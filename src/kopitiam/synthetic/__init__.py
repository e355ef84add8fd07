"""Seeded sales in the layout of the real chain's exports, at any scale: realistic, or wild for tests."""

from kopitiam.synthetic.generator import Generated, generate
from kopitiam.synthetic.shapes import Profile, WildShape

__all__ = ["Generated", "Profile", "WildShape", "generate"]
