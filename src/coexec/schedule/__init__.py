"""The scheduler: events of a program and of its devices in, batches of instructions out. One composition for everybody."""
