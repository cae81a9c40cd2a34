"""From commands to instructions."""
