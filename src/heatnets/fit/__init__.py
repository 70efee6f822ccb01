"""Collocation rows, the linear system, its least-squares solution, Newton steps."""
