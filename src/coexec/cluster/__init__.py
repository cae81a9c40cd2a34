"""Ranks of a cluster: who computes what of each task, and who sends what to whom."""
