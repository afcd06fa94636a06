"""`shed`: one line in an existing job."""
