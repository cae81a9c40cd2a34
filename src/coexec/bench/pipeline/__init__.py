"""Benchmark of pipelines: plans against all schedules, streams on real devices, and data that changes its character."""
