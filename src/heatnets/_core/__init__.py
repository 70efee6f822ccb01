"""Errors, precision, random numbers, timing, files, tiled evaluation."""
