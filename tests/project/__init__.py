"""Tests of the project as such: its layout, its floors, its version, its wheel."""
