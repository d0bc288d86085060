"""Tests of README.md and docs/."""
