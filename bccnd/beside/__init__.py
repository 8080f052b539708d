"""What the programs beside the daemon have in common."""
