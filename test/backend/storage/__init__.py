"""Memory of tensors: views, writes, histories, files, and arrays of other libraries."""
