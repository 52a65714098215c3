//! What the clients of the simulator did and were told, judged by the checker: by the same rules as real processes.

use riverlog_checker::{check, read, write};
use riverlog_sim::{Options, run};

const KEPT: Options = Options {
    show: false,
    history: true,
    pace: None,
};

#[test]
fn the_checker_agrees_that_honest_runs_keep_every_promise() {
    let mut sent = 0;
    for seed in 0..25 {
        let report = run(seed, KEPT);
        let mut file = Vec::new();
        write(&mut file, &report.history).unwrap();
        let verdict = check(&read(&file[..]).unwrap());
        assert!(verdict.anomalies.is_empty(), "seed {seed}: {verdict}");
        sent += verdict.counts.acknowledged.min(verdict.counts.read);
    }
    assert!(sent > 1_000, "{sent} acknowledged and read");
}
