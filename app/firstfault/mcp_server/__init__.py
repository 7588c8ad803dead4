"""What may another program's assistant ask? Read-only tools over stdio, by the Model Context Protocol."""
