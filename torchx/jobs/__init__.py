"""Files of local jobs: record, events, lock and logs."""
