"""Slow ranks of batch jobs: agents publish the steps of ranks, a program beside the script compares them."""
