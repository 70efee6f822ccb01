"""Fixed-size and adaptive solvers behind `heatnets.solve`."""
