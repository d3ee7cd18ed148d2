"""Token ids to logits: the configuration, weights and layers of a transformer."""
