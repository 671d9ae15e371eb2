"""Callbacks: what is seen while a network trains. They know app.protocols only."""
