"""Topics as a sink of Spark."""
