"""POP: messages given away for a while, and what becomes of those nobody acknowledges."""
