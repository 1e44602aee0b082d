"""The client: what producers and consumers do, for asyncio; `blocking` gives it to callers without a loop."""
