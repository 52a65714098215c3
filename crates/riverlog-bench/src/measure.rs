//! Printing measures, and the CPU time of this process and of the broker's.

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

/// The broker's process.
pub(crate) fn broker_pid() -> Result<u32> {
    let pid = std::env::var("BROKER_PID")
        .map_err(|_| "BROKER_PID names the broker's process: cargo xtask bench sets it")?;
    Ok(pid.parse()?)
}

/// User and system time of a process so far (Linux).
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name before it may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks =
        |n: usize| -> Result<f64> { Ok(fields.get(n).ok_or("a short line in /proc")?.parse()?) };
    // Clock ticks are 100 a second on every Linux that Rust runs on.
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// Latencies in microseconds, from 1 µs to a minute with three digits.
pub(crate) fn latencies() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000, 3)?)
}

/// Prints the median, and what 1 % and 0.1 % exceed.
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
    print(
        &format!("{name} p99.9"),
        histogram.value_at_quantile(0.999) as f64 / 1e3,
        "ms",
    );
}
