"""Topics as a source of Spark."""
