"""Finding the right page: passages, a lexical and a vector index, and their fusion."""
