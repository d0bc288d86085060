"""What is kept on disk of a local job: its record, its events, its lock and its logs."""
