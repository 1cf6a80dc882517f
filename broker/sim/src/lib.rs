//! A whole cluster in one thread from one seed: the simulated side of the node's seam.
