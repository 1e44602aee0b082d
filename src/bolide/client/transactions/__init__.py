"""Messages that count only if something else has happened."""
