//! Whether the addresses that clients are told lead anywhere, as far as this machine can tell: a wrong one is the commonest
//! reason why clients connect and then get nowhere.

use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::client::place;

/// How long a name may take to resolve, and an address to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Tries each of some listeners' advertised addresses, and warns of those that don't answer.
pub(crate) async fn check(advertised: Vec<(String, (String, u16))>) {
    for (listener, (host, port)) in advertised {
        if let Err(why) = reach(&host, port).await {
            let at = place(&host, port);
            tracing::warn!(
                listener,
                advertised = at,
                "clients of listener {listener} are told {at}, and from here {why}: unless it leads here from where they are, set advertised.listeners to what does (`riverlog doctor connect` tries it from there)"
            );
        }
    }
}

async fn reach(host: &str, port: u16) -> Result<(), String> {
    let unresolved = |why: String| format!("the name {host} doesn't resolve ({why})");
    let addresses: Vec<_> = match timeout(PATIENCE, lookup_host((host, port))).await {
        Err(_) => return Err(unresolved("no answer in time".to_owned())),
        Ok(Err(error)) => return Err(unresolved(error.to_string())),
        Ok(Ok(addresses)) => addresses.collect(),
    };
    let mut last = unresolved("it has no address".to_owned());
    for address in addresses {
        match timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => last = format!("{address} doesn't answer ({error})"),
            Err(_) => last = format!("{address} doesn't answer in time"),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::reach;

    #[tokio::test]
    async fn addresses_are_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(reach("127.0.0.1", port).await, Ok(()));
        drop(listener);
        let why = reach("127.0.0.1", port).await.unwrap_err();
        assert!(why.contains("doesn't answer"), "{why}");
        let why = reach("no.such.host.invalid", port).await.unwrap_err();
        assert!(why.contains("doesn't resolve"), "{why}");
    }
}
