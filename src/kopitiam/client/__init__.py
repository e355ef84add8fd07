"""The side of the person with the files: a CSV folder becomes numbered chunks."""
