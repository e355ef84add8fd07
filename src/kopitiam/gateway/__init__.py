"""The front door: takes chunks in, makes them durable, hands answers out. Holds no state of its own."""
