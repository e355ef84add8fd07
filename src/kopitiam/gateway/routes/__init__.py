"""The HTTP calls, one module for each noun."""
