"""Messages go out: who may pull what, what is wanted of it, and pulls that wait."""
