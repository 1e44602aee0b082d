"""The broker: takes messages, keeps them, hands them out, and remembers who has read how far."""
