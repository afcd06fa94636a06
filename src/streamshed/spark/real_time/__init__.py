"""`shed` in real-time mode: rows are judged one by one, by their age, on an age ladder."""
