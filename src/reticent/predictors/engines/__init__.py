"""What answers in a phase."""
