"""Operations on sharded tensors."""
