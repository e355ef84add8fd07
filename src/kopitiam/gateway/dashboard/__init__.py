"""The dashboard: a page of plain JavaScript modules over the same calls that every client makes."""
