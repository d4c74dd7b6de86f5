"""Adam and what goes with it: rules by weight, norms, schedules, averages."""
