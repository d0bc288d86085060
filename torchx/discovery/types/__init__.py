"""Types of component arguments: annotations, values and their text."""
