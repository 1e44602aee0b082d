"""Orders: saved by a view, told of by a message, cooked by a command."""
