"""Everything that runs on Spark: the session, the stages, and the questions composed of them."""
