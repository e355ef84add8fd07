"""Charts of answers: plan, data, drawing, rendering as SVG on the server."""
