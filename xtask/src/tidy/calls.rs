//! Calls and words that have no place in a crate: clocks, threads and randomness in the rules, unfinished
//! work anywhere.

use super::source::{code_only, whole_word, without_tests};
use super::{File, Finding};

struct Rule {
    /// Where it holds: prefixes of paths.
    within: &'static [&'static str],
    /// Files below `within` where it doesn't.
    except: &'static [&'static str],
    words: &'static [&'static str],
    look_in: LookIn,
    why: &'static str,
    remedy: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LookIn {
    /// Code that is built into the crate.
    Code,
    /// The tests' code as well.
    CodeAndTests,
    /// Comments and strings, too.
    Everything,
}

const WIRE: &str = "crates/riverlog-wire/";
const LOG: &str = "crates/riverlog-log/";
const CORE: &str = "crates/riverlog-core/";
const NODE: &str = "crates/riverlog-node/";
const API: &str = "crates/riverlog-api/";
const SCHEMA: &str = "crates/riverlog-schema/";
const CHECKER: &str = "crates/riverlog-checker/";
const SIM: &str = "crates/riverlog-sim/";
const LIBRARY: &str = "crates/riverlog/";

/// The simulator's command line measures its own speed; all below it runs on virtual time.
const SIM_COMMAND: &[&str] = &["crates/riverlog-sim/src/main.rs"];

const RULES: &[Rule] = &[
    Rule {
        within: &[WIRE, LOG, CORE, NODE, API, SCHEMA, CHECKER, SIM],
        except: SIM_COMMAND,
        words: &["Instant::now", "SystemTime", "UNIX_EPOCH"],
        look_in: LookIn::Code,
        why: "time is an argument below the hosts, so that a simulator can play any clock",
        remedy: "take the time as a parameter; the host (server, embedded library) reads the clock",
    },
    Rule {
        within: &[WIRE, LOG, CORE, NODE, API, SCHEMA, CHECKER, SIM],
        except: SIM_COMMAND,
        words: &[
            "thread::spawn",
            "thread::Builder",
            "thread::scope",
            "thread::sleep",
        ],
        look_in: LookIn::Code,
        why: "threads belong to the hosts: the simulator runs everything on one",
        remedy: "return a job or an effect and let the host run it",
    },
    Rule {
        within: &[WIRE, LOG, CORE, NODE, SCHEMA, CHECKER],
        except: &[],
        words: &["async fn", "async move", "async {", ".await", "tokio::"],
        look_in: LookIn::Code,
        why: "state machines that take events and give effects need no runtime and replay exactly",
        remedy: "split the wait out: give a reply handle now, complete it on a later event",
    },
    Rule {
        within: &[WIRE, LOG, CORE, NODE, SIM],
        except: &[],
        words: &[
            "rand::",
            "thread_rng",
            "getrandom",
            "RandomState",
            "fastrand::",
        ],
        look_in: LookIn::Code,
        why: "randomness from outside the seed ends bit-exact replay",
        remedy: "take random values as part of the command, or use a map with a fixed order",
    },
    Rule {
        within: &[WIRE, LOG, CORE, NODE, API, SCHEMA, CHECKER, SIM],
        except: &[],
        words: &["TcpStream", "TcpListener", "UdpSocket", "ToSocketAddrs"],
        look_in: LookIn::Code,
        why: "sockets belong to the hosts",
        remedy: "take bytes and give bytes",
    },
    Rule {
        within: &[WIRE, CORE, NODE, API, SCHEMA],
        except: &[],
        words: &["std::fs", "File::open", "File::create", "OpenOptions"],
        look_in: LookIn::Code,
        why: "files are reached through riverlog-log's disk alone, where faults can be played",
        remedy: "use the Disk that the node was given",
    },
    Rule {
        within: &[CORE],
        except: &[],
        words: &["HashMap", "HashSet"],
        look_in: LookIn::Code,
        why: "the order of a hash map would show in records, answers and traces",
        remedy: "use a BTreeMap or BTreeSet",
    },
    Rule {
        within: &[WIRE, LOG, CORE, NODE, API, SCHEMA, CHECKER, LIBRARY],
        // A program beside the library.
        except: &["crates/riverlog-checker/src/main.rs"],
        words: &[
            "println!(",
            "eprintln!(",
            "print!(",
            "eprint!(",
            "process::exit",
        ],
        look_in: LookIn::Code,
        why: "a library neither writes on its user's terminal nor ends the program",
        remedy: "return it, or count it where the host can see it",
    },
    Rule {
        within: &["crates/", "xtask/"],
        except: &[],
        words: &["unsafe"],
        look_in: LookIn::CodeAndTests,
        why: "no crate needs it; were one to, it would live in one small module of system calls",
        remedy: "use a safe wrapper (rustix, bytes); otherwise an ADR, and the file as an exception here",
    },
    Rule {
        within: &["crates/", "xtask/", "tests/"],
        except: &[],
        words: &["todo!(", "unimplemented!(", "dbg!("],
        look_in: LookIn::CodeAndTests,
        why: "main holds finished work",
        remedy: "finish it, or leave it out and say so in the issue",
    },
    Rule {
        within: &["crates/", "xtask/", "tests/", "console/", "docs/"],
        // The rules name what they look for.
        except: &["xtask/src/tidy/calls.rs"],
        words: &["FIXME", "TODO", "XXX"],
        look_in: LookIn::Everything,
        why: "a note in the code is read by nobody who could do it",
        remedy: "do it, or open an issue",
    },
];

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files {
        check_file(file, &mut found);
    }
    found
}

fn check_file(file: &File, found: &mut Vec<Finding>) {
    let applies = |rule: &&Rule| {
        let below = |list: &[&str]| list.iter().any(|prefix| file.path.starts_with(prefix));
        below(rule.within)
            && !below(rule.except)
            && (rule.look_in == LookIn::Everything || file.is_rust())
            && (rule.look_in != LookIn::Code || !is_beside(&file.path))
    };
    let rules: Vec<&Rule> = RULES.iter().filter(applies).collect();
    if rules.is_empty() {
        return;
    }
    let code = if file.is_rust() {
        code_only(&file.text)
    } else {
        String::new()
    };
    let built = without_tests(&code);
    for rule in rules {
        let text = match rule.look_in {
            LookIn::Code => &built,
            LookIn::CodeAndTests => &code,
            LookIn::Everything => &file.text,
        };
        for (n, line) in text.lines().enumerate() {
            for word in rule.words {
                if line
                    .match_indices(word)
                    .any(|(at, _)| whole_word(line, at, word))
                {
                    found.push(Finding {
                        file: file.path.clone(),
                        line: n + 1,
                        what: format!("`{word}` has no place here"),
                        why: rule.why.into(),
                        remedy: rule.remedy.into(),
                    });
                }
            }
        }
    }
}

/// Whole files that aren't built into the crate: `tests/…`, `…/tests.rs`, `benches/…`, `examples/…`.
fn is_beside(path: &str) -> bool {
    let in_crate = path.splitn(3, '/').nth(2).unwrap_or_default();
    in_crate.starts_with("tests/")
        || in_crate.starts_with("benches/")
        || in_crate.starts_with("examples/")
        || in_crate.contains("/tests/")
        || in_crate.ends_with("/tests.rs")
        || in_crate.ends_with("_tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = File {
            path: path.into(),
            text: text.into(),
        };
        let found = check(&[file]);
        found.into_iter().map(|f| (f.line, f.what)).collect()
    }

    #[test]
    fn a_clock_in_the_rules_is_found_and_in_the_server_it_is_not() {
        let text = "fn f() {\n    let now = Instant::now();\n}\n";
        let expected = [(2, "`Instant::now` has no place here".to_owned())];
        assert_eq!(found("crates/riverlog-core/src/a.rs", text), expected);
        assert_eq!(found("crates/riverlog-server/src/a.rs", text), []);
        assert_eq!(found("crates/riverlog/src/a.rs", text), []);
    }

    #[test]
    fn the_simulator_is_held_to_virtual_time_except_its_command_line() {
        let text = "let t = Instant::now();";
        assert_eq!(found("crates/riverlog-sim/src/world.rs", text).len(), 1);
        assert_eq!(found("crates/riverlog-sim/src/main.rs", text), []);
    }

    #[test]
    fn words_in_comments_and_strings_are_no_calls() {
        let text = "// Instant::now\n/// SystemTime\nlet a = \"thread::spawn\";\n";
        assert_eq!(found("crates/riverlog-node/src/a.rs", text), []);
    }

    #[test]
    fn tests_may_use_threads_wherever_they_stand() {
        let text = "#[cfg(test)]\nmod tests {\n fn f() { std::thread::spawn(g); }\n}\n";
        assert_eq!(found("crates/riverlog-log/src/a.rs", text), []);
        assert_eq!(
            found("crates/riverlog-log/src/a/tests.rs", "thread::spawn(f);"),
            []
        );
        assert_eq!(
            found("crates/riverlog-log/tests/a.rs", "thread::spawn(f);"),
            []
        );
        assert_eq!(
            found("crates/riverlog-log/examples/a.rs", "thread::spawn(f);"),
            []
        );
        assert_eq!(
            found("crates/riverlog-log/src/a.rs", "thread::spawn(f);").len(),
            1
        );
    }

    #[test]
    fn unfinished_work_is_found_in_tests_and_in_comments() {
        assert_eq!(found("crates/riverlog-log/tests/a.rs", "todo!()").len(), 1);
        assert_eq!(
            found("crates/riverlog-server/src/a.rs", "// FIXME: later").len(),
            1
        );
        assert_eq!(found("tests/compat/a.py", "# TODO").len(), 1);
        assert_eq!(
            found("crates/riverlog-server/src/a.rs", "let todos = 1;"),
            []
        );
    }

    #[test]
    fn hash_maps_are_kept_out_of_the_rules_only() {
        assert_eq!(
            found(
                "crates/riverlog-core/src/a.rs",
                "use std::collections::HashMap;"
            )
            .len(),
            1
        );
        assert_eq!(
            found(
                "crates/riverlog-node/src/a.rs",
                "use std::collections::HashMap;"
            ),
            []
        );
    }

    #[test]
    fn the_word_alone_is_looked_for() {
        assert_eq!(
            found("crates/riverlog-wire/src/a.rs", "#![forbid(unsafe_code)]"),
            []
        );
        assert_eq!(
            found("crates/riverlog-wire/src/a.rs", "unsafe { f() }").len(),
            1
        );
    }
}
