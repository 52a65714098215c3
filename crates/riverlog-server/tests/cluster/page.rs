//! Plays what `docs/operations/cluster.md` shows, word for word but for addresses and folders, so that its commands go on working.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::common::{Server, eventually, riverlog, run_with};
use crate::trio::{agree, members, places};

const PAGE: &str = include_str!("../../../../docs/operations/cluster.md");

/// Commands of the page that other tests play.
const ELSEWHERE: &[(&str, &str)] = &[
    (
        "riverlog dev --nodes 3",
        "dev_runs_three_nodes_as_processes_and_ends_them",
    ),
    (
        "riverlog cluster elect --unclean --topic orders",
        "lives::who_lacks_records_leads_only_when_that_is_commanded_and_the_loss_is_said",
    ),
];

/// What the page tells people to run: blocks, and words in backticks that begin with the program's name.
fn commands() -> BTreeSet<String> {
    let block = |line: &'static str| line.strip_prefix("    ");
    let blocks = PAGE.lines().filter_map(block).map(str::trim);
    let words = PAGE.lines().filter(|line| block(line).is_none());
    let words = words.flat_map(|line| line.split('`').skip(1).step_by(2));
    let all = blocks.chain(words);
    all.filter(|text| text.starts_with("riverlog "))
        .map(str::to_owned)
        .collect()
}

struct Story {
    folder: TempDir,
    /// Of nodes 1 and up.
    places: Vec<String>,
    nodes: Vec<Option<Server>>,
    left: BTreeSet<String>,
}

impl Story {
    fn new() -> Story {
        let mut left = commands();
        for (command, test) in ELSEWHERE {
            assert!(left.remove(*command), "{command} ({test}) isn't there");
        }
        Story {
            folder: tempfile::tempdir().unwrap(),
            places: places(4),
            nodes: (0..4).map(|_| None).collect(),
            left,
        }
    }

    fn data(&self, id: usize) -> PathBuf {
        self.folder.path().join(format!("n{id}"))
    }

    fn up(&self) -> Vec<&Server> {
        self.nodes.iter().flatten().collect()
    }

    /// The page's words for a node, at addresses of this machine; node 4 is started like the third.
    fn serve(&mut self, id: usize) {
        let shown = id.min(3);
        let begins = format!("riverlog serve --node-id {shown} ");
        let mut each = PAGE.lines().map(str::trim);
        let command = each.find(|line| line.starts_with(&begins));
        let command = command.unwrap_or_else(|| panic!("nothing starts node {shown}"));
        self.left.remove(command);
        let mut command = command.to_owned();
        let own = format!("--listen 127.0.0.1:{}", 9091 + shown);
        assert!(command.contains(&own), "{command}");
        command = command.replace(&own, &format!("--listen {}", self.places[id - 1]));
        for (n, place) in (0..3).zip(&self.places) {
            command = command.replace(&format!("127.0.0.1:{}", 9092 + n), place);
        }
        command = command.replace(&format!("--node-id {shown}"), &format!("--node-id {id}"));
        let data = self.data(id).display().to_string();
        command = command.replace(&format!("-d n{shown}"), &format!("-d {data}"));
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let more = ["--log-format", "json"];
        self.nodes[id - 1] = Some(Server::spawned(riverlog(&[&words[..], &more].concat())));
    }

    fn stop(&mut self, id: usize) {
        let (code, log) = self.nodes[id - 1].take().unwrap().stop();
        assert_eq!(code, Some(0), "{log}");
    }

    fn run(&self, command: &str, input: &str) -> std::process::Output {
        let brokers = self.places.join(",");
        let mut all = vec!["-b", &brokers, "--timeout", "60s"];
        all.extend(command.split(' ').skip(1));
        run_with(&all, input)
    }

    /// Runs a command of the page, perhaps with more words; it does what it is asked.
    fn play(&mut self, command: &str, more: &str) -> String {
        self.left.remove(command);
        assert!(commands().contains(command), "{command} isn't on the page");
        let output = self.run(&format!("{command}{more}"), "");
        let error = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{command}{more}: {error}{said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// As [`Story::play`], of what says with its end that something isn't done yet.
    fn play_until(&mut self, command: &str) {
        self.left.remove(command);
        assert!(commands().contains(command), "{command} isn't on the page");
        let done = || self.run(command, "").status.success();
        let output = || String::from_utf8(self.run(command, "").stdout).unwrap();
        assert!(eventually(done), "{command}: {}", output());
    }

    /// Waits until a node that was started is taken in.
    fn joined(&self, id: usize) {
        let names = || {
            let output = self.run("riverlog cluster brokers -o json", "");
            let table: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            let mut rows = table["data"].as_array()?.iter();
            rows.find(|row| row["id"] == id && row["state"] == "up")
                .cloned()
        };
        assert!(
            eventually(|| names().is_some()),
            "{:?}",
            self.run("riverlog cluster brokers -o json", "")
        );
    }

    fn votes(&self, id: i64) -> bool {
        let told = members(self.up()[0]);
        told.iter().any(|(node, voter, _)| *node == id && *voter)
    }
}

#[test]
fn the_commands_of_the_page_on_clusters_do_what_it_says() {
    let mut story = Story::new();
    // A node alone, with something on it, that grows into three.
    let place = story.places[0].clone();
    let alone = Server::start_at(&story.data(1), &place, &[]);
    alone.ok(&["topic", "create", "older", "-p", "1"]);
    alone.ok_with(&["produce", "older"], "kept\n");
    assert_eq!(alone.stop().0, Some(0));
    for id in 1..=3 {
        story.serve(id);
    }
    agree(&story.up());
    (1..=3).for_each(|id| story.joined(id));
    story.play("riverlog cluster quorum", "");
    story.play("riverlog cluster brokers", "");
    story.play(
        "riverlog topic create orders -p 3 -r 3 -c min.insync.replicas=2",
        "",
    );
    story.play_until("riverlog cluster health");
    story.play(
        "riverlog cluster reassign orders --replicas 1,2,3 --wait",
        "",
    );
    story.play("riverlog cluster rebalance --dry-run", "");
    story.play("riverlog cluster rebalance", "");
    story.play_until("riverlog cluster health");
    let older = story.run("riverlog consume older -e", "");
    assert_eq!(String::from_utf8_lossy(&older.stdout), "kept\n");

    // A fourth, and what moves to it.
    story.serve(4);
    story.joined(4);
    assert!(eventually(|| members(story.up()[0]).len() == 4));
    assert!(!story.votes(4));
    story.play("riverlog cluster add-voter 4", "");
    assert!(eventually(|| story.votes(4)));
    story.play("riverlog cluster reassign --throttle 10MiB", "");
    let to = "riverlog cluster reassign orders:0 --replicas 4,2,3";
    story.play(to, " --dry-run");
    story.play(to, " --wait");
    story.play("riverlog cluster reassign --status", "");
    let none = story.run("riverlog cluster reassign --throttle none", "");
    assert!(none.status.success());
    let plan = story.folder.path().join("plan.json");
    let words =
        r#"{"version":1,"partitions":[{"topic":"orders","partition":1,"replicas":[4,1,2]}]}"#;
    std::fs::write(&plan, words).unwrap();
    let by_plan = "riverlog cluster reassign --plan plan.json";
    story.left.remove(by_plan);
    let output = story.run(&by_plan.replace("plan.json", plan.to_str().unwrap()), "");
    assert!(output.status.success(), "{output:?}");
    // Whether it was through already is a matter of time.
    story.play("riverlog cluster reassign --cancel", "");
    story.play_until("riverlog cluster health");

    // One restarts, and leads again what it led.
    story.stop(2);
    story.serve(2);
    story.play_until("riverlog cluster health");
    story.play("riverlog cluster elect", "");

    // One comes back with an empty disk.
    story.stop(3);
    std::fs::remove_dir_all(story.data(3)).unwrap();
    story.serve(3);
    assert!(eventually(|| story.votes(3)));
    story.play_until("riverlog cluster health");

    // And then for good: the other three take over.
    story.nodes[2].take().unwrap().kill();
    std::fs::remove_dir_all(story.data(3)).unwrap();
    story.play("riverlog cluster drain 3", "");
    // Refused until it is known to be gone.
    story.play_until("riverlog cluster remove-voter 3");
    story.play_until("riverlog cluster unregister 3");
    story.play_until("riverlog cluster health");

    // A node leaves in order, once there is another one for its copies.
    story.serve(3);
    story.joined(3);
    assert!(eventually(|| members(story.up()[0]).len() == 4));
    // It is among the seeds.
    assert!(eventually(|| story.votes(3)));
    story.play("riverlog cluster drain 4", "");
    story.stop(4);
    story.play_until("riverlog cluster remove-voter 4");
    story.play_until("riverlog cluster unregister 4");
    story.play_until("riverlog cluster health");

    story.play("riverlog topic add-partitions orders --to 12", " --yes");
    story.play("riverlog cluster reassign orders --replicas 1,2", " --wait");
    story.play("riverlog config set cluster riverlog.rebalance=true", "");
    story.play_until("riverlog cluster health");

    // Where a node is.
    story.stop(2);
    let rack = "riverlog serve --rack zone-a";
    assert!(story.left.remove(rack));
    let data = story.data(2).display().to_string();
    let words = ["serve", "--rack", "zone-a", "--node-id", "2", "-d", &data];
    let place = story.places[1].clone();
    let more = ["--listen", &place, "--http", "none", "--log-format", "json"];
    story.nodes[1] = Some(Server::spawned(riverlog(&[&words[..], &more].concat())));
    story.play_until("riverlog cluster health");
    // What only names a command is played with what belongs to it.
    let all = commands();
    story.left.retain(|short| {
        let longer = format!("{short} ");
        !all.iter().any(|command| command.starts_with(&longer))
    });
    assert!(story.left.is_empty(), "not played: {:?}", story.left);
}
