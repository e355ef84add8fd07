"""Liveness, leader election and barriers: pure state machines, and the shells that feed them time, messages
and registry snapshots.
"""
