"""Operations on a cluster: what an administrator asks and changes, as functions."""
