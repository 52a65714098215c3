//! The rules: replicas, groups, cluster metadata. Touches nothing.
