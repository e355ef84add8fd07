"""The dashboard: a page of plain JavaScript modules over the public API."""
