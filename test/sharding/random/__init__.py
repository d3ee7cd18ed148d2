"""Random programs, and what they found."""
