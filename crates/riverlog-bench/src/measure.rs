//! Printing measures, and the CPU time of this process.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Result;

/// Prints one measure; blanks in a name become `_`.
pub(crate) fn print(name: &str, value: f64, unit: &str) {
    println!("MEASURE {} {value} {unit}", name.replace(' ', "_"));
}

/// User and system time of this process so far.
pub(crate) fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// Latencies in microseconds, from 1 µs to a minute with three digits.
pub(crate) fn latencies() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000, 3)?)
}

/// Prints the median and the 99th percentile.
pub(crate) fn print_latencies(name: &str, histogram: &Histogram<u64>) {
    print(
        &format!("{name} p50"),
        histogram.value_at_quantile(0.5) as f64 / 1e3,
        "ms",
    );
    print(
        &format!("{name} p99"),
        histogram.value_at_quantile(0.99) as f64 / 1e3,
        "ms",
    );
}
