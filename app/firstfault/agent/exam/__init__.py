"""May a model lead? An exam of incidents with known answers, and what was made of it."""
