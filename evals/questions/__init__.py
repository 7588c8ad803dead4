"""Does a question get the answer that it asks for? Questions with what a useful answer holds."""
