"""What do only the numbers say? Step lines of training logs, read and judged like vital signs."""
