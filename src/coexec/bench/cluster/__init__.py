"""Real ranks against hand-written MPI: `coexec bench cluster`."""
