"""What the code needs from the machine: durable and locked files, logs, threads, worker
processes, crash points."""
