"""Memory of tensors: realized, assigned, converted, exchanged with other libraries."""
