"""What a broker remembers beside its messages: topics, groups, offsets, filters; each a table with its file."""
