"""Load-Aware Shedding of one operator: what each row costs, how long it would wait, and whether it may enter."""
