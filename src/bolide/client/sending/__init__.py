"""From what a user gives to its receipt: the stages of a send."""
