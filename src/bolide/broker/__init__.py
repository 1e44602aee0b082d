"""The broker: takes messages, keeps them, hands them out, and remembers how far each group has read."""
