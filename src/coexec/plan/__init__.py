"""Who does which part: candidates, placement, division."""
