"""Small helpers with documented names."""
