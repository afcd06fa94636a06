"""One operator in virtual time, for Load-Aware Shedding."""
