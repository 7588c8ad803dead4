"""What do findings mean beside each other? Typed relations, the record of every decision, and the order of explanations."""
