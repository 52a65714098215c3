//! Families of samples, and their text.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// One sample of a family: labels and value.
type Sample = (Vec<(&'static str, String)>, f64);

/// A family of samples.
#[derive(Clone, Debug)]
pub(super) struct Family {
    name: String,
    help: &'static str,
    counter: bool,
    samples: Vec<Sample>,
}

impl Family {
    pub(super) fn gauge(name: impl Into<String>, help: &'static str) -> Family {
        Family {
            name: name.into(),
            help,
            counter: false,
            samples: Vec::new(),
        }
    }

    /// The encoder writes a counter's `_total` itself.
    pub(super) fn counter(name: impl Into<String>, help: &'static str) -> Family {
        Family {
            counter: true,
            ..Family::gauge(name, help)
        }
    }

    /// With one sample that has no labels.
    pub(super) fn of(mut self, value: f64) -> Family {
        self.samples.push((Vec::new(), value));
        self
    }

    pub(super) fn add(&mut self, labels: Vec<(&'static str, String)>, value: f64) {
        self.samples.push((labels, value));
    }
}

/// Families that were just collected.
#[derive(Debug)]
struct Collected(Vec<Family>);

/// All families, in OpenMetrics' text form. A family without samples is left out.
pub(super) fn text(mut families: Vec<Family>) -> Result<String, fmt::Error> {
    families.retain(|family| !family.samples.is_empty());
    let mut out = String::new();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(families)));
    encode(&mut out, &registry)?;
    Ok(out)
}

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = match family.counter {
                true => MetricType::Counter,
                false => MetricType::Gauge,
            };
            let mut out = encoder.encode_descriptor(&family.name, family.help, None, kind)?;
            if let [(labels, value)] = family.samples.as_slice()
                && labels.is_empty()
            {
                match family.counter {
                    true => ConstCounter::new(*value).encode(out)?,
                    false => ConstGauge::new(*value).encode(out)?,
                }
                continue;
            }
            for (labels, value) in &family.samples {
                let labels: Vec<(&str, &str)> =
                    labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
                let out = out.encode_family(&labels)?;
                match family.counter {
                    true => ConstCounter::new(*value).encode(out)?,
                    false => ConstGauge::new(*value).encode(out)?,
                }
            }
        }
        Ok(())
    }
}
