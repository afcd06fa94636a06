"""Plain models to compare compiled code with: slow, written row by row as the papers have them, and trusted."""
