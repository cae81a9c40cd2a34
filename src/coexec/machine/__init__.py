"""Devices, memories and links as plain data."""
