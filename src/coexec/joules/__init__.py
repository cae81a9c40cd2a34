"""Energy: counters of the machine where it has some and lets us read them, and otherwise the watts of its platform."""
