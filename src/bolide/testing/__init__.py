"""Doubles that ship: time you hold, a link you can cut."""
