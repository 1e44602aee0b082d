"""Messages taken for a while, by any number of members: each is acknowledged by itself, in any order."""
