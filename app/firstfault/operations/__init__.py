"""Does the installation work? Logs, health and the doctor's checks."""
