"""Pure transforms, each `DataFrame -> DataFrame`: no reads, no actions, no session, parameters by closure."""
