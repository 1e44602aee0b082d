"""The asyncio transport: frames in, replies out, one connection at a time."""
