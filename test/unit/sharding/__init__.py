"""Layout arithmetic: layouts, meshes, links, pictures."""
