"""Systems other than Linux: the parts that need none of it work there, and the others say so."""
