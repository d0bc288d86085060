"""A package beside the component files."""
