"""The interface between the core and the engines."""
