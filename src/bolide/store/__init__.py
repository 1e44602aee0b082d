"""The store: one writer, one log; everything else is derived from it."""
