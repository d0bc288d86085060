"""Terminal output: progress, live views, times, masking and interrupts."""
