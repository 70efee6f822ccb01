"""Direction designs, feature families, and the value and residual of a feature."""
