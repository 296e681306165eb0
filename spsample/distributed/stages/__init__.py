"""Algorithm 2 of the matrix paper (Tripathy, Yelick, Buluc, MLSys 2024), and the baseline that broadcasts all of A."""
