"""The scheduler: its passes, and memory that values share."""
