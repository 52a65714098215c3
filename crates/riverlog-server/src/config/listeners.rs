//! `listeners`, `advertised.listeners` and what belongs to them.

use std::collections::BTreeMap;

use riverlog_core::config::BrokerValues;

use crate::client::place;

/// One listener of the Kafka door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What clients are told; `None`: what it is bound to.
    pub(crate) advertised: Option<(String, u16)>,
}

/// All of them, with what is worth a warning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
    /// Those that other nodes of a cluster come to; a node alone opens none of them.
    pub(crate) controllers: Vec<Listener>,
    pub(crate) warnings: Vec<String>,
}

/// Unless set.
const DEFAULT: &str = "PLAINTEXT://127.0.0.1:9092";

impl Listeners {
    /// From the values of a node. All mistakes at once.
    pub(crate) fn read(values: BrokerValues<'_>) -> Result<Listeners, Vec<String>> {
        let mut mistakes = Vec::new();
        let mut out = Listeners::default();
        let protocols = protocols(
            values
                .text("listener.security.protocol.map")
                .unwrap_or_default(),
            &mut mistakes,
        );
        let controllers: Vec<&str> =
            items(values.text("controller.listener.names").unwrap_or_default()).collect();
        let listeners = values
            .text("listeners")
            .filter(|l| !l.is_empty())
            .unwrap_or(DEFAULT);
        for item in items(listeners) {
            let Some((name, host, port)) = parse(item, "listeners", &mut mistakes) else {
                continue;
            };
            let for_nodes = controllers.contains(&name.as_str());
            let protocol = protocols.get(&name).map_or(name.as_str(), String::as_str);
            if protocol != "PLAINTEXT" {
                mistakes.push(match protocol {
                    "SSL" | "SASL_PLAINTEXT" | "SASL_SSL" => format!(
                        "listeners = {item}: listeners with {protocol} can't be served yet, and are never opened without it; use PLAINTEXT"
                    ),
                    _ => format!(
                        "listeners = {item}: the protocol of {name} isn't known; add {name}:PLAINTEXT to listener.security.protocol.map"
                    ),
                });
                continue;
            }
            if out
                .all
                .iter()
                .chain(&out.controllers)
                .any(|l| l.name == name)
            {
                mistakes.push(format!(
                    "listeners names {name} twice; give each listener a name of its own"
                ));
                continue;
            }
            let listener = Listener {
                name,
                host,
                port,
                advertised: None,
            };
            if for_nodes {
                out.warnings.push(format!(
                    "listener {} is for other nodes: a node alone doesn't open it",
                    listener.name
                ));
                out.controllers.push(listener);
            } else {
                out.all.push(listener);
            }
        }
        for item in items(values.text("advertised.listeners").unwrap_or_default()) {
            let Some((name, host, port)) = parse(item, "advertised.listeners", &mut mistakes)
            else {
                continue;
            };
            if controllers.contains(&name.as_str()) {
                continue;
            }
            if matches!(host.as_str(), "" | "0.0.0.0" | "::") {
                mistakes.push(format!(
                    "advertised.listeners = {item}: clients can't connect to {:?}; give a name or address that they reach",
                    place(&host, port)
                ));
                continue;
            }
            match out.all.iter_mut().find(|l| l.name == name) {
                Some(listener) => listener.advertised = Some((host, port)),
                None => mistakes.push(format!(
                    "advertised.listeners names {name}, but listeners doesn't; name it in both"
                )),
            }
        }
        if let Some(name) = values
            .text("inter.broker.listener.name")
            .filter(|n| !n.is_empty())
            && mistakes.is_empty()
            && !out.all.iter().any(|l| l.name == name)
        {
            mistakes.push(format!(
                "inter.broker.listener.name = {name}: listeners has no such name"
            ));
        }
        if out.all.is_empty() && mistakes.is_empty() {
            mistakes.push("listeners opens no port for clients; name at least one".to_owned());
        }
        if mistakes.is_empty() {
            Ok(out)
        } else {
            Err(mistakes)
        }
    }
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|i| !i.is_empty())
}

fn protocols(map: &str, mistakes: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for item in items(map) {
        match item.split_once(':') {
            Some((name, protocol)) => {
                out.insert(name.trim().to_owned(), protocol.trim().to_ascii_uppercase());
            }
            None => mistakes.push(format!(
                "listener.security.protocol.map = {item}: give NAME:PROTOCOL"
            )),
        }
    }
    out
}

/// `NAME://host:port`; an empty host is all addresses, brackets around IPv6.
fn parse(item: &str, key: &str, mistakes: &mut Vec<String>) -> Option<(String, String, u16)> {
    let parts = item.split_once("://").and_then(|(name, rest)| {
        let (host, port) = rest.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok()?;
        let host = if host.is_empty() && key == "listeners" {
            "0.0.0.0"
        } else {
            host
        };
        (!name.is_empty()).then(|| (name.to_owned(), host.to_owned(), port))
    });
    if parts.is_none() {
        mistakes.push(format!(
            "{key} = {item}: give NAME://host:port, for instance PLAINTEXT://127.0.0.1:9092"
        ));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Listeners, Vec<String>> {
        let values = values
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect();
        Listeners::read(BrokerValues(&values))
    }

    #[test]
    fn without_settings_only_loopback_is_served() {
        let got = read(&[]).unwrap();
        assert_eq!(got.all.len(), 1);
        assert_eq!(
            (got.all[0].host.as_str(), got.all[0].port),
            ("127.0.0.1", 9092)
        );
    }

    #[test]
    fn names_map_to_protocols_and_controllers_are_left_out() {
        let got = read(&[
            (
                "listeners",
                "PLAINTEXT://0.0.0.0:9092,BROKER://:9093,CONTROLLER://0.0.0.0:9094",
            ),
            (
                "listener.security.protocol.map",
                "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("inter.broker.listener.name", "BROKER"),
            (
                "advertised.listeners",
                "PLAINTEXT://localhost:32768,BROKER://[::1]:9093",
            ),
        ])
        .unwrap();
        let all: Vec<_> = got
            .all
            .iter()
            .map(|l| (l.name.as_str(), l.host.as_str(), l.advertised.clone()))
            .collect();
        assert_eq!(
            all,
            [
                (
                    "PLAINTEXT",
                    "0.0.0.0",
                    Some(("localhost".to_owned(), 32768))
                ),
                ("BROKER", "0.0.0.0", Some(("::1".to_owned(), 9093))),
            ]
        );
        assert_eq!(got.warnings.len(), 1);
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        for (values, words) in [
            (
                vec![("listeners", "SSL://127.0.0.1:9093")],
                "can't be served yet",
            ),
            (vec![("listeners", "X://127.0.0.1:9093")], "isn't known"),
            (
                vec![("listeners", "127.0.0.1:9093")],
                "give NAME://host:port",
            ),
            (
                vec![("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")],
                "can't connect",
            ),
            (
                vec![("advertised.listeners", "OUTSIDE://a:1")],
                "listeners doesn't",
            ),
            (vec![("inter.broker.listener.name", "Z")], "no such name"),
        ] {
            let mistakes = read(&values).unwrap_err();
            assert!(mistakes[0].contains(words), "{mistakes:?}");
        }
    }
}
