"""The statement of a problem: initial condition, coefficients, region, transforms, paths."""
