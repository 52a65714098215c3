//! ApiVersions v0–v5 (KIP-35, 511, 584, 1242).
