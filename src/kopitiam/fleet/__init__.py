"""A fleet on one machine: nodes as detached processes, the services they need, and all of them at once."""
