//! One broker put together over one seam for clock, randomness, disk and network.
