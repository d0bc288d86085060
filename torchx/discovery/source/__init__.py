"""The source of component files: read and checked without importing it."""
