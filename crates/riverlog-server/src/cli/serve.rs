//! `riverlog serve`.

use std::path::PathBuf;

use clap::Args;

use super::values;
use crate::config::{self, Inputs};
use crate::failure::{Exit, Failure};
use crate::serve::log::{self, LogFormat};
use crate::serve::{Plan, config_failure, run};

/// Runs a broker.
#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    /// Data folder; made and formatted when it is new
    #[arg(short = 'd', long, env = "RIVERLOG_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen for Kafka clients: HOST:PORT or NAME://HOST:PORT; may be repeated
    #[arg(
        short,
        long,
        env = "RIVERLOG_LISTEN",
        value_delimiter = ',',
        value_name = "HOST:PORT"
    )]
    listen: Vec<String>,
    /// Where to listen for HTTP (health, metrics), or none; 127.0.0.1:8082 unless given
    #[arg(long, env = "RIVERLOG_HTTP", value_name = "HOST:PORT")]
    http: Option<String>,
    /// Configuration: server.properties or TOML
    #[arg(short, long, env = "RIVERLOG_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// One key of the configuration; may be repeated
    #[arg(short, long, value_parser = values::pair, value_name = "KEY=VALUE")]
    set: Vec<(String, String)>,
    /// Number of this node among others, and key node.id; 1 unless given
    #[arg(long, env = "RIVERLOG_NODE_ID", value_name = "N")]
    node_id: Option<i32>,
    /// Rack or zone of this node, and key broker.rack: copies are spread over racks, and consumers may read from their own
    #[arg(long, env = "RIVERLOG_RACK", value_name = "RACK")]
    rack: Option<String>,
    /// Nodes that form a cluster, this one among them: HOST:PORT, comma-separated, where their clients come to
    #[arg(
        long,
        env = "RIVERLOG_SEEDS",
        value_delimiter = ',',
        value_name = "HOST:PORT"
    )]
    seeds: Vec<String>,
    /// File that only the nodes of the cluster have: they know each other by it, and speak TLS
    #[arg(long, env = "RIVERLOG_CLUSTER_KEY", value_name = "FILE")]
    cluster_key: Option<PathBuf>,
    /// Serve other machines though nobody is asked who they are
    #[arg(long, env = "RIVERLOG_INSECURE", value_parser = clap::builder::FalseyValueParser::new(), num_args = 0, default_missing_value = "true")]
    insecure: bool,
    /// Form of the log
    #[arg(
        long,
        env = "RIVERLOG_LOG_FORMAT",
        value_enum,
        default_value = "auto",
        value_name = "FORM"
    )]
    log_format: LogFormat,
    /// Level of the log: error, warn, info, debug, trace
    #[arg(
        long,
        env = "RIVERLOG_LOG_LEVEL",
        default_value = "info",
        value_name = "LEVEL"
    )]
    log_level: String,
    /// End when standard input does: whoever holds it is gone then
    #[arg(long, hide = true)]
    with_parent: bool,
    /// Also say the lines that tools wait for in Kafka's log
    #[arg(long, env = "RIVERLOG_LOG_COMPAT", value_parser = ["kafka", "none"], default_value = "none", hide = true)]
    log_compat: String,
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        log::start(self.log_format, &self.log_level)?;
        run(&self.plan()?, |_| {})
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let mut flags: Vec<(String, String, &'static str)> = self
            .set
            .iter()
            .map(|(k, v)| (k.clone(), v.clone(), "--set"))
            .collect();
        if !self.listen.is_empty() {
            flags.push(("listeners".to_owned(), listeners(&self.listen)?, "--listen"));
        }
        if let Some(id) = self.node_id {
            flags.push(("node.id".to_owned(), id.to_string(), "--node-id"));
        }
        if let Some(rack) = &self.rack {
            flags.push(("broker.rack".to_owned(), rack.clone(), "--rack"));
        }
        if let Some(data) = &self.data {
            flags.push(("log.dirs".to_owned(), data.display().to_string(), "--data"));
        }
        if let Some(path) = &self.config
            && !path.exists()
        {
            return Err(Failure::new(
                Exit::NotFound,
                format!("there is no configuration file {}", path.display()),
            )
            .hint("check --config, or leave it out: every key has a default"));
        }
        let inputs = Inputs {
            file: self.config.clone(),
            // A variable that isn't text can't be meant for us.
            environment: std::env::vars_os()
                .filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)))
                .collect(),
            flags,
        };
        let config = config::load(&inputs).map_err(|mistakes| config_failure(&mistakes))?;
        let folder = config
            .values
            .get("log.dirs")
            .or(config.values.get("log.dir"));
        let data = folder.map_or_else(|| PathBuf::from("./riverlog-data"), PathBuf::from);
        let key = config.broker().text("riverlog.http.address");
        let http = match self.http.as_deref().or(key).unwrap_or_default() {
            "none" | "off" | "" => None,
            at => Some(at.to_owned()),
        };
        let seeds = match self.seeds.is_empty() {
            true => config.seeds(),
            false => self.seeds.clone(),
        };
        Ok(Plan {
            seeds,
            cluster_key: self.cluster_key.clone(),
            config,
            data,
            http,
            insecure: self.insecure,
            kafka_lines: self.log_compat == "kafka",
            with_parent: self.with_parent,
        })
    }
}

/// `--listen` as the key `listeners`: addresses without a name get one.
fn listeners(given: &[String]) -> Result<String, Failure> {
    let mut out = Vec::new();
    for (i, item) in given.iter().enumerate() {
        if item.contains("://") {
            out.push(item.clone());
            continue;
        }
        let (host, port) = crate::client::address(item)?;
        // Only PLAINTEXT is a protocol's own name; others must be told apart from it by the map.
        if i > 0 {
            return Err(Failure::usage("several --listen need names")
                .hint("give NAME://HOST:PORT for each, and --set listener.security.protocol.map=NAME:PLAINTEXT,…"));
        }
        out.push(format!("PLAINTEXT://{}", crate::client::place(&host, port)));
    }
    Ok(out.join(","))
}
