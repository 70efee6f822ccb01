"""Direction designs, feature families, and the equation applied to a feature."""
