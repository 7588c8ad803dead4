"""What is on record? Incidents with their turns, events, evidence, runs, diagnoses and feedback."""
