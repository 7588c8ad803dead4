"""How much of a step is pipeline bubble? Exact schedules, closed forms, inverse questions."""
