//! Rings: values of the past at two steps, in memory that is bounded.

use std::collections::VecDeque;
use std::time::Duration;

use super::kept::Bytes;

/// Between two looks at the node.
pub(crate) const STEP: Duration = Duration::from_secs(10);
/// Values of the fine step that are kept: an hour.
const FINE: usize = 360;
/// Values of the fine step that one of the coarse step stands for: five minutes.
pub(super) const COARSE_OF: u64 = 30;

/// One series. Values are `f32`: seven digits are more than a plot shows. NaN stands for a look that didn't see it.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    fine: VecDeque<f32>,
    coarse: VecDeque<f32>,
    /// The look of the newest value.
    last: u64,
    keeps: usize,
    sum: f64,
    seen: u32,
}

impl Ring {
    /// `keeps`: values of the coarse step.
    pub(super) fn new(keeps: usize) -> Ring {
        Ring {
            fine: VecDeque::new(),
            coarse: VecDeque::new(),
            last: 0,
            keeps,
            sum: 0.0,
            seen: 0,
        }
    }

    /// Puts the value of a look; looks count from 1. What lies between it and the last one was not seen.
    pub(super) fn put(&mut self, look: u64, value: Option<f64>) {
        let missed = look.saturating_sub(self.last + 1);
        if self.last > 0 && look <= self.last {
            return;
        }
        if self.last > 0 {
            let coarse = u64::try_from(self.keeps).unwrap_or(u64::MAX);
            let most = coarse.saturating_mul(COARSE_OF);
            for n in 0..missed.min(most) {
                self.one(look - missed + n, None);
            }
        }
        self.one(look, value);
        self.last = look;
    }

    fn one(&mut self, look: u64, value: Option<f64>) {
        push(&mut self.fine, FINE, value.map_or(f32::NAN, |v| v as f32));
        if let Some(value) = value {
            self.sum += value;
            self.seen += 1;
        }
        if look.is_multiple_of(COARSE_OF) {
            let mean = match self.seen {
                0 => f32::NAN,
                n => (self.sum / f64::from(n)) as f32,
            };
            push(&mut self.coarse, self.keeps, mean);
            (self.sum, self.seen) = (0.0, 0);
        }
    }

    /// The coarse step, for a file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + 4 * self.coarse.len());
        out.extend_from_slice(&self.last.to_be_bytes());
        out.extend_from_slice(&self.sum.to_bits().to_be_bytes());
        out.extend_from_slice(&self.seen.to_be_bytes());
        for value in &self.coarse {
            out.extend_from_slice(&value.to_bits().to_be_bytes());
        }
        out
    }

    /// From a file; `look` was the last one when it was written.
    pub(super) fn decode(bytes: &[u8], keeps: usize, look: u64) -> Option<Ring> {
        let mut from = Bytes(bytes);
        let mut ring = Ring::new(keeps);
        ring.last = from.u64()?;
        ring.sum = f64::from_bits(from.u64()?);
        ring.seen = from.u32()?;
        while !from.0.is_empty() {
            let value = f32::from_bits(from.u32()?);
            push(&mut ring.coarse, keeps, value);
        }
        let sound = ring.last <= look && ring.sum.is_finite() && u64::from(ring.seen) <= COARSE_OF;
        sound.then_some(ring)
    }

    /// The newest `count` values up to a look, oldest first; those that aren't there are `None`.
    pub(super) fn fine(&self, look: u64, count: usize) -> Vec<Option<f32>> {
        tail(&self.fine, look.saturating_sub(self.last), count)
    }

    /// The same at the coarse step.
    pub(super) fn coarse(&self, look: u64, count: usize) -> Vec<Option<f32>> {
        tail(
            &self.coarse,
            look / COARSE_OF - self.last.min(look) / COARSE_OF,
            count,
        )
    }

    /// The sum of the last minute: what says how active it is.
    pub(super) fn activity(&self) -> f64 {
        let recent = self.fine.iter().rev().take(6);
        recent.filter(|v| !v.is_nan()).map(|v| f64::from(*v)).sum()
    }
}

fn push(ring: &mut VecDeque<f32>, keeps: usize, value: f32) {
    if ring.len() >= keeps {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// `gap`: looks since the newest value.
fn tail(ring: &VecDeque<f32>, gap: u64, count: usize) -> Vec<Option<f32>> {
    let gap = usize::try_from(gap).unwrap_or(usize::MAX).min(count);
    let wanted = count - gap;
    let absent = wanted.saturating_sub(ring.len());
    let values = ring.iter().skip(ring.len().saturating_sub(wanted));
    let known = |v: &f32| (!v.is_nan()).then_some(*v);
    let mut out = vec![None; absent];
    out.extend(values.map(known));
    out.resize(count, None);
    out
}

/// How far back a plot goes: values, and how long each stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) count: usize,
    pub(super) coarse: bool,
}

impl Span {
    /// What `window` in a query may be.
    pub(super) const CHOICES: &[(&str, Span)] = &[
        (
            "15m",
            Span {
                count: 90,
                coarse: false,
            },
        ),
        (
            "1h",
            Span {
                count: 360,
                coarse: false,
            },
        ),
        (
            "6h",
            Span {
                count: 72,
                coarse: true,
            },
        ),
        (
            "24h",
            Span {
                count: 288,
                coarse: true,
            },
        ),
        (
            "7d",
            Span {
                count: 2016,
                coarse: true,
            },
        ),
        (
            "30d",
            Span {
                count: 8640,
                coarse: true,
            },
        ),
    ];

    pub(super) fn step_ms(self) -> u64 {
        let fine = STEP.as_millis() as u64;
        if self.coarse { fine * COARSE_OF } else { fine }
    }

    /// How many looks ago the newest value of this step was complete.
    pub(super) fn since(self, look: u64) -> u64 {
        if self.coarse { look % COARSE_OF } else { 0 }
    }

    pub(super) fn of(self, ring: &Ring, look: u64) -> Vec<Option<f32>> {
        if self.coarse {
            ring.coarse(look, self.count)
        } else {
            ring.fine(look, self.count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_past_is_kept_at_two_steps_and_no_further() {
        let mut ring = Ring::new(3);
        for look in 1..=150 {
            ring.put(look, Some(look as f64));
        }
        assert_eq!(ring.fine(150, 2), [Some(149.0), Some(150.0)]);
        // 31..=60 were let go; each is the mean of thirty.
        assert_eq!(
            ring.coarse(150, 4),
            [None, Some(75.5), Some(105.5), Some(135.5)]
        );
        for look in 151..=1000 {
            ring.put(look, Some(0.0));
        }
        assert_eq!(ring.fine.len(), FINE);
        assert_eq!(ring.coarse.len(), 3);
    }

    #[test]
    fn what_no_look_saw_is_missing_and_not_zero() {
        let mut ring = Ring::new(10);
        ring.put(7, Some(1.0));
        ring.put(9, Some(2.0));
        assert_eq!(
            ring.fine(10, 6),
            [None, None, Some(1.0), None, Some(2.0), None]
        );
        ring.put(9, Some(9.0));
        assert_eq!(ring.fine(9, 1), [Some(2.0)]);
        ring.put(60, None);
        assert_eq!(ring.coarse(60, 2), [Some(1.5), None]);
        assert_eq!(ring.coarse(61, 1), [None]);
        assert_eq!(ring.activity(), 0.0);
    }
}
