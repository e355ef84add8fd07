"""Storage of landing, partials, results and rejected rows: on this machine, or shared by all machines."""
