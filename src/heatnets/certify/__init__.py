"""Certificates: Monte Carlo estimators, samples of the error, intervals for values, derivatives."""
