"""Is what we are about to say true to the evidence? Pure checks of quotes, advice and names."""
