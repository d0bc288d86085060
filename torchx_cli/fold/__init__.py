"""Equal lines of several replicas as one line."""
