"""From a kernel's tensor form to its kernel graph: movement becomes index arithmetic."""
