"""LightningModules: a network, a loss, an optimizer and a schedule."""
