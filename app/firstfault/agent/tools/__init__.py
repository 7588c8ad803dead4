"""What may the model look at? Read-only tools over the evidence, the pages, and the calculators."""
