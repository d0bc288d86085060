"""Services in containers: their probes, and the label that describes them."""
