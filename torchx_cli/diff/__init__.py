"""The comparison of two applications: arguments, options, environment, source, packages, machine, results."""
