//! The public Kubernetes API of Taffrail: the Cluster and Topic kinds.
