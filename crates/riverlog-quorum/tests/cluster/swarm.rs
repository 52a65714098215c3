//! Many short lives of a cluster with random faults.

use crate::life::run;

#[test]
fn faults_lose_nothing_and_healing_brings_everybody_on() {
    for seed in 0..40 {
        let trace = run(seed);
        assert!(trace.len() > 20, "seed {seed} did nothing");
    }
}
