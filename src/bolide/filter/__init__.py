"""Which messages a consumer wants: an expression becomes a test on tag hashes, later on properties."""
