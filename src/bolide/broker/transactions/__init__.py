"""Half messages: kept aside until their transaction is decided, and asked about when it is not."""
