"""The benchmark `compile`: compiled bodies beside NumPy, hand-written loops and other libraries."""
