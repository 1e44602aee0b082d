"""Messages come in: sent, sent back, replied, or staged for one publication."""
