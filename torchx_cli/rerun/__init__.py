"""Submit an application again with other arguments, from its recorded command line and its record."""
