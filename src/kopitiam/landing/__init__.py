"""Accepted rows at rest: where they lie, the bytes of a chunk, the rows set aside, and tidying up."""
