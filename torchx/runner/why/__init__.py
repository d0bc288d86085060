"""The explanation of the state of an application, and its plain data."""
