//! The clients: how each program under `tests/compat/` is made ready to run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::peer::kafka;
use crate::place;
use crate::run::{cargo, program};
use crate::tools::{self, Tool};

pub(super) struct Client {
    pub(super) name: &'static str,
    /// What it reports: the cases of all clients, or those of its own.
    pub(super) own_cases: bool,
    /// Brings what it needs into the cache and returns the command line, to which bootstrap address and
    /// prefix are added.
    pub(super) prepare: fn() -> Result<Vec<String>>,
}

pub(super) const ALL: &[Client] = &[
    Client {
        name: "kcat",
        own_cases: false,
        prepare: kcat,
    },
    Client {
        name: "confluent-kafka",
        own_cases: false,
        prepare: || python("confluent.py"),
    },
    Client {
        name: "kafka-python",
        own_cases: false,
        prepare: || python("kafka_python.py"),
    },
    Client {
        name: "aiokafka",
        own_cases: false,
        prepare: || python("aio.py"),
    },
    Client {
        name: "kafkajs",
        own_cases: false,
        prepare: kafkajs,
    },
    Client {
        name: "sarama",
        own_cases: false,
        prepare: || go("sarama"),
    },
    Client {
        name: "kafka-go",
        own_cases: false,
        prepare: || go("kafkago"),
    },
    Client {
        name: "rskafka",
        own_cases: false,
        prepare: || rust("rskafka"),
    },
    Client {
        name: "krafka",
        own_cases: false,
        prepare: || rust("krafka"),
    },
    Client {
        name: "java",
        own_cases: false,
        prepare: java,
    },
    Client {
        name: "streams",
        own_cases: true,
        prepare: || on_the_jvm("streams", "WordCount.java"),
    },
    Client {
        name: "connect",
        own_cases: true,
        prepare: || on_the_jvm("connect", "FileConnect.java"),
    },
    Client {
        name: "console",
        own_cases: true,
        prepare: console,
    },
    Client {
        name: "raw-frames",
        own_cases: true,
        prepare: checks,
    },
];

fn here(path: &str) -> PathBuf {
    place::root().join("tests/compat").join(path)
}

fn words(parts: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
    parts.into_iter().map(|p| p.display().to_string()).collect()
}

fn kcat() -> Result<Vec<String>> {
    tools::ensure(&[Tool::Kcat])?;
    Ok(words(["bash".into(), here("kcat/cases.sh")]))
}

fn python(file: &str) -> Result<Vec<String>> {
    let python = tools::python_env("compat-python", &here("python/requirements.txt"))?;
    // No compiled copies in the source tree.
    Ok(words([python, "-B".into(), here("python").join(file)]))
}

fn kafkajs() -> Result<Vec<String>> {
    tools::ensure(&[Tool::Node, Tool::Npm])?;
    let [manifest, lock] = ["package.json", "package-lock.json"];
    let read = |file: &str| fs::read_to_string(here("node").join(file));
    let recipe = format!("{}{}", read(manifest)?, read(lock)?);
    let dir = place::cached("compat-node", &recipe, |dir| {
        for file in [manifest, lock] {
            fs::copy(here("node").join(file), dir.join(file))?;
        }
        program("npm")
            .dir(dir)
            .args([
                "ci",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
            ])
            .limit(180)
            .output()?;
        Ok(())
    })?;
    // Node looks for packages beside the script, and then where this variable says.
    let modules = format!("NODE_PATH={}", dir.join("node_modules").display());
    Ok(vec![
        "env".into(),
        modules,
        "node".into(),
        here("node/kafkajs.js").display().to_string(),
    ])
}

fn go(name: &str) -> Result<Vec<String>> {
    let binary = place::cache("compat-go")?.join(name);
    tools::go_build(&here("go"), &format!("./{name}"), &binary)?;
    Ok(words([binary]))
}

fn rust(name: &str) -> Result<Vec<String>> {
    let target = place::cache("compat-rust")?;
    let package = format!("riverlog-compat-{name}");
    cargo()
        .dir(here("rust"))
        .args(["build", "--quiet", "--locked", "--package", &package])
        .arg("--target-dir")
        .arg(&target)
        .limit(600)
        .output()?;
    Ok(words([target.join("debug").join(package)]))
}

/// The table of conversations in `tests/checks`.
fn checks() -> Result<Vec<String>> {
    let build = ["build", "--quiet", "--package", "riverlog-checks"];
    cargo().args(build).limit(600).output()?;
    Ok(words([place::target().join("debug/riverlog-checks")]))
}

fn java() -> Result<Vec<String>> {
    Ok(jvm(&kafka::jars()?, &here("java/Cases.java")))
}

/// Kafka's own command-line tools.
fn console() -> Result<Vec<String>> {
    let logging = here("kafka/log4j2.properties");
    Ok(words([
        "bash".into(),
        here("console/cases.sh"),
        kafka::jars()?,
        logging,
    ]))
}

/// A program with the jars that the pom beside it names.
fn on_the_jvm(folder: &str, file: &str) -> Result<Vec<String>> {
    let jars = kafka::jars_of(&format!("compat-{folder}"), &here(folder).join("pom.xml"))?;
    Ok(jvm(&jars, &here(folder).join(file)))
}

/// The program is told its own name, for those that start themselves once more.
fn jvm(jars: &Path, file: &Path) -> Vec<String> {
    let logging = here("kafka/log4j2.properties");
    vec![
        "java".into(),
        "-XX:TieredStopAtLevel=1".into(),
        format!("-Dprogram={}", file.display()),
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".into(),
        format!("{}/*", jars.display()),
        file.display().to_string(),
    ]
}
