"""Group communication: the port, its twin in memory, and RabbitMQ."""
