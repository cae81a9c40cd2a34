"""Devices behind one small asynchronous contract."""
