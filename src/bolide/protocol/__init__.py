"""Sans-IO: bytes ↔ commands. Nothing here imports asyncio or a socket."""
