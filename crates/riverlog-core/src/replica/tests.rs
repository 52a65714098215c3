//! Scripts, and all small histories.
