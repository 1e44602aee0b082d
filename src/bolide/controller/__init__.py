"""The controller: which broker of a name is master, and which of them are in sync with it."""
