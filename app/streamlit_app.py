"""Entry of the chat page."""
