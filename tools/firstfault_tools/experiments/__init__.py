"""Which hypothesis holds? Experiments with a prediction, repeated trials, a stopping rule and a result."""
