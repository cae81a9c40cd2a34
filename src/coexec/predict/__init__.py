"""How long it will take: predictions from what was measured."""
