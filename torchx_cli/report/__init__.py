"""Reports of applications: one page without network access, or the same data as JSON."""
