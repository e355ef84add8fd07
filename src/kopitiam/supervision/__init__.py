"""Who lives, who leads, when a barrier opens: pure machines, and the shells that bring them time, messages
and the registry.
"""
