"""Base layer: errors, precision, random streams, statistics, timing, files, tiled evaluation."""
