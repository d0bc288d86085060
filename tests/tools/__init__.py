"""Programs that examine the tests themselves; none of them is a test."""
