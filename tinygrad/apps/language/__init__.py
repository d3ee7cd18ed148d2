"""Language models: text to tokens, tokens to probabilities, and programs to talk with them."""
