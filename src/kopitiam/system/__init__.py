"""Access to the machine: settings, durable and locked files, logs, threads, worker processes, crashes."""
