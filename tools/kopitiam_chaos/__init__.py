"""Trouble on purpose: nodes of a running fleet are killed and frozen by a seed, under the hands of clients
whose answers have to be exact. Nothing here is needed to run a fleet."""
