//! How fast a client may read: the quota of its client id, of brokers that have quotas.

use riverlog_wire::ErrorCode;
use riverlog_wire::messages::describe_client_quotas_request::ComponentData;
use riverlog_wire::messages::{ApiKey, DescribeClientQuotasRequest};

use crate::client::Client;
use crate::failure::Failure;

/// Every entity of that type, with a name or without.
const ANY: i8 = 2;

/// Bytes a second that clients of this id may read; `None`: as many as they like, as far as this broker says.
pub(super) fn bytes_a_second(client: &mut Client, id: &str) -> Result<Option<f64>, Failure> {
    if client.any()?.version(ApiKey::DescribeClientQuotas).is_err() {
        return Ok(None);
    }
    let request = DescribeClientQuotasRequest {
        components: vec![ComponentData {
            entity_type: "client-id".to_owned(),
            match_type: ANY,
            r#match: None,
        }],
        strict: true,
    };
    let answer = client.ask(&request)?;
    // Who may not look at quotas is told nothing of them.
    if answer.error_code != ErrorCode::NONE {
        return Ok(None);
    }
    let (mut own, mut default) = (None, None);
    for entry in answer.entries.unwrap_or_default() {
        let rates = entry.values.iter();
        let rate = rates
            .filter(|v| v.key == "consumer_byte_rate")
            .map(|v| v.value)
            .next();
        match entry.entity.first().map(|e| e.entity_name.as_deref()) {
            Some(Some(name)) if name == id => own = rate,
            Some(None) => default = rate,
            _ => {}
        }
    }
    Ok(own.or(default))
}
