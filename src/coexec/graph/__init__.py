"""The three graphs: nodes, and the task graph's dependencies."""
