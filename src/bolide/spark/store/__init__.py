"""The files of a store as a source of Spark."""
