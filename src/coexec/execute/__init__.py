"""The engine and the executor."""
