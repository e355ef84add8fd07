"""How Java and Spark are found, configured, started, watched and stopped. Nothing here knows about sales."""
