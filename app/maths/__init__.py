"""Pure functions of tensors, torch only: the equations."""
