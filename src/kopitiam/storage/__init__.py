"""Where landing, partials, results and rejected rows are kept: here, or where all machines see them."""
