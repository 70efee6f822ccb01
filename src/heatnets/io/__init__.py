"""Problem files, formulas and result files."""
