"""Problem files (TOML or Python), formulas, and result files."""
