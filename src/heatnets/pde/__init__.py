"""The statement of a problem: data, coefficients, regions, transforms, paths."""
