"""Monte Carlo estimators, error samples, certified values and derivatives."""
