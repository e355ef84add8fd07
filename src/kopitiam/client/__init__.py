"""The client: reads a folder of CSV files, uploads it in numbered chunks, downloads the answers."""
