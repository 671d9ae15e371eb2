"""LightningDataModules, one task a file. They never import app and are never imported by it."""
