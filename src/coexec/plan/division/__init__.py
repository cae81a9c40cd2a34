"""Dividing one call over unlike devices so that all finish together: offers, the optimum, whole rows, pieces."""
