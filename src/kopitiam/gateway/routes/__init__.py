"""The HTTP calls, one module for each resource."""
