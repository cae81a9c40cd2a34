"""What a trace tells: pure functions of its rows."""
