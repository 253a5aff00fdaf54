"""Are predicted distributions honest? Scores on held-out episodes, and predicted spread over rollouts."""
