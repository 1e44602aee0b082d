"""Values that cross doors: frozen, slotted, no I/O."""
