"""Streams: a function of one item, cut into stages on groups of devices, and applied to items without end."""
