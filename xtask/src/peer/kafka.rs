//! Apache Kafka itself: its jars through Maven, its settings, its storage format step, its tools.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::broker::{Spec, address, free_port};
use crate::place;
use crate::run::{Run, program};
use crate::tools::{self, Tool};

fn files() -> PathBuf {
    place::root().join("tests/compat/kafka")
}

/// The folder with Kafka's jars (the version that `tests/compat/kafka/pom.xml` names), brought if needed.
pub(crate) fn jars() -> Result<PathBuf> {
    jars_of("peer-kafka-jars", &files().join("pom.xml"))
}

/// The folder with the jars that a pom names, in the cache under `name`, brought if needed.
pub(crate) fn jars_of(name: &str, pom: &Path) -> Result<PathBuf> {
    let pom = fs::read_to_string(pom)?;
    let dir = place::cached(name, &pom, |dir| {
        tools::ensure(&[Tool::Java, Tool::Maven])?;
        // Maven's plug-in writes marks beside the pom: it works on a copy.
        fs::write(dir.join("pom.xml"), &pom)?;
        program("mvn")
            .dir(dir)
            .args([
                "-q",
                "-B",
                "-Dstyle.color=never",
                "dependency:copy-dependencies",
            ])
            .args(["-DincludeScope=runtime", "-DoutputDirectory=libs"])
            .limit(300)
            .output()?;
        Ok(())
    })?;
    tools::ensure(&[Tool::Java])?;
    Ok(dir.join("libs"))
}

/// The version in `pom`.
pub(crate) fn version() -> Result<String> {
    let pom = fs::read_to_string(files().join("pom.xml"))?;
    let between = |text: &str| -> Option<String> {
        let (_, rest) = text.split_once("<kafka.version>")?;
        Some(rest.split_once('<')?.0.to_owned())
    };
    between(&pom).ok_or_else(|| "tests/compat/kafka/pom.xml names no kafka.version".into())
}

/// `java` with Kafka's classes; the main class and its arguments follow.
fn java(level: &str) -> Result<Run> {
    let logging = files().join("log4j2.properties");
    Ok(program("java")
        .arg(format!("-Dlevel={level}"))
        .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
        .arg("-cp")
        .arg(format!("{}/*", jars()?.display())))
}

/// One of Kafka's tools, by the name of its class; a full class name or a Java source file will do too.
pub(crate) fn tool(name: &str) -> Result<Run> {
    let class = match name {
        _ if name.ends_with(".java") || name.contains('.') => name.to_owned(),
        "StorageTool" => "kafka.tools.StorageTool".to_owned(),
        "ConsoleConsumer" => "org.apache.kafka.tools.consumer.ConsoleConsumer".to_owned(),
        "ConsoleShareConsumer" => "org.apache.kafka.tools.consumer.ConsoleShareConsumer".to_owned(),
        "ConsumerGroupCommand" | "ShareGroupCommand" => {
            format!("org.apache.kafka.tools.consumer.group.{name}")
        }
        "StreamsGroupCommand" => "org.apache.kafka.tools.streams.StreamsGroupCommand".to_owned(),
        "ReassignPartitionsCommand" => {
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand".to_owned()
        }
        _ => format!("org.apache.kafka.tools.{name}"),
    };
    Ok(java("WARN")?.arg(class))
}

pub(crate) fn settings_file(dir: &Path) -> PathBuf {
    dir.join("server.properties")
}

/// What a node needs to run, alone or as a member, then the settings of `spec`: a key given twice counts as given last.
fn settings(spec: &Spec, controller: u16) -> String {
    let member = spec.member.as_ref();
    let controller = member.map_or(address(controller), |m| m.places[m.node - 1].1);
    let listeners = |port| format!("PLAINTEXT://{},CONTROLLER://{}", spec.at(port), controller);
    let one_node = [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", member.map_or(1, |m| m.node).to_string()),
        ("listeners", listeners(spec.port)),
        (
            "advertised.listeners",
            listeners(spec.advertised.unwrap_or(spec.port)),
        ),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned(),
        ),
        ("log.dirs", spec.dir.join("data").display().to_string()),
    ];
    let alone = [
        ("offsets.topic.replication.factor", "1".to_owned()),
        ("transaction.state.log.replication.factor", "1".to_owned()),
        ("transaction.state.log.min.isr", "1".to_owned()),
        (
            "share.coordinator.state.topic.replication.factor",
            "1".to_owned(),
        ),
        ("share.coordinator.state.topic.min.isr", "1".to_owned()),
    ];
    let mut text = String::new();
    let node = spec.settings.iter().rfind(|(k, _)| k == "node.id");
    let node = node.map_or("1", |(_, v)| v);
    let (alone, voters) = match member {
        None => (&alone[..], format!("{node}@{controller}")),
        Some(member) => {
            let each = (1..).zip(&member.places);
            let each = each.map(|(node, (_, place))| format!("{node}@{place}"));
            (&[][..], each.collect::<Vec<_>>().join(","))
        }
    };
    let voters = ("controller.quorum.voters", voters);
    let own = one_node
        .into_iter()
        .chain(alone.iter().cloned())
        .chain([voters]);
    for (key, value) in own.chain(spec.settings.iter().map(|(k, v)| (k.as_str(), v.clone()))) {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{key}={value}");
    }
    text
}

/// Writes the settings, formats the storage the first time, and returns the command that serves.
pub(crate) fn launch(spec: &Spec) -> Result<Run> {
    let file = settings_file(&spec.dir);
    fs::write(&file, settings(spec, free_port()?))?;
    if !spec.dir.join("data/meta.properties").exists() {
        let id = match &spec.member {
            Some(member) => member.cluster_id.clone(),
            None => new_cluster_id()?,
        };
        tool("StorageTool")?
            .args(["format", "--cluster-id", &id, "--config"])
            .arg(&file)
            .limit(120)
            .output()?;
    }
    // Heap and collector as in Kafka's own start script.
    let heap = std::env::var("KAFKA_HEAP_OPTS").unwrap_or_else(|_| "-Xmx1G -Xms1G".into());
    let more = std::env::var("KAFKA_OPTS").unwrap_or_default();
    let flags = "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
                 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true";
    let flags = format!("{heap} {flags} {more}");
    Ok(java("INFO")?
        .args(flags.split_whitespace())
        .arg("kafka.Kafka")
        .arg(file))
}

/// Sixteen random bytes in base64 without padding, as Kafka writes its ids.
pub(crate) fn new_cluster_id() -> Result<String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    let value = u128::from_str_radix(&uuid.trim().replace('-', ""), 16)?;
    // 128 bits are 21 digits of six bits and one of the last two bits, which stand left in their digit.
    let digit = |n: u32| match n {
        21 => (value & 0b11) << 4,
        _ => value >> (122 - 6 * n) & 0b11_1111,
    };
    let id: String = (0..22)
        .map(|n| char::from(DIGITS[digit(n) as usize]))
        .collect();
    // A leading dash would be read as an option.
    Ok(id.replace('-', "A"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Kind;

    #[test]
    fn a_cluster_id_has_the_length_of_sixteen_bytes_in_base64() {
        let id = new_cluster_id().unwrap();
        assert_eq!(id.len(), 22);
        assert_ne!(id, new_cluster_id().unwrap());
    }

    #[test]
    fn given_settings_come_last_and_the_voter_follows_the_node_id() {
        let spec = Spec::new(Kind::Kafka, "dir").unwrap().set("node.id", "7");
        let text = settings(&spec, 9);
        assert!(
            text.contains("controller.quorum.voters=7@127.0.0.1:9\n"),
            "{text}"
        );
        assert!(text.ends_with("node.id=7\n"), "{text}");
    }

    #[test]
    fn the_pom_names_a_version() {
        assert!(version().unwrap().starts_with("4."));
    }
}
