"""The state of an application on a cluster: replicas, attempts, reasons, damage."""
