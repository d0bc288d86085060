"""Features of other packages: their flags of `run`, their rows of `status`, their checks of `doctor`."""
