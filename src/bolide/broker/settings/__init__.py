"""Settings that have no effect here, and settings that are refused."""
