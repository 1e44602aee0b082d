"""How things are typed: the `bolide` command."""
