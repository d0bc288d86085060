"""Tests of the project itself: its layout, levels, version and wheel."""
