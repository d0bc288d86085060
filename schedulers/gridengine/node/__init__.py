"""Files that run on the hosts of a Grid Engine job; submission copies them to its folder."""
