"""The origin of an application: its source, its Python, and the machine that submitted it."""
