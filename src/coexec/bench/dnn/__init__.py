"""Networks on many accelerators: searches for mappings against baselines and bounds, and plans that run here."""
