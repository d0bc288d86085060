"""Parts that the engines of batch systems share: the script of a job, its files, and their answers."""
