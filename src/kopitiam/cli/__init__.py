"""What a person types: one module for each command."""
