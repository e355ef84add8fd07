"""Seeded data sets in the layout of the real chain's exports, at any scale: like the real ones, or wild."""

from kopitiam.synthetic.generator import Generated, generate
from kopitiam.synthetic.shapes import Profile, WildShape

__all__ = ["Generated", "Profile", "WildShape", "generate"]
