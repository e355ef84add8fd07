"""Charts: designed from a question's definition, drawn once on the server as SVG, shown everywhere."""
