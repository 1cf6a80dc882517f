//! Every decision of a broker: placement, replication, controller, groups; no I/O and no clock.
