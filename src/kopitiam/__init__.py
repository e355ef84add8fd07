"""Kopitiam: exact answers about a coffee chain's sales."""

__version__ = "0.1.0"
