"""Grids of runs that settle claims, and the pages that show what came out."""
