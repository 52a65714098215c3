//! The step `monitoring`: Prometheus reads the rules, and every expression of rules and dashboards.

use std::fs;

use serde_json::Value;

use crate::Result;
use crate::broker;
use crate::place::Scratch;
use crate::run::program;
use crate::tools::{self, Tool};

/// What a dashboard's variables stand for.
const VARIABLES: &[(&str, &str)] = &[("$topic", ".*"), ("$group", ".*")];

pub(crate) fn run() -> Result<()> {
    tools::ensure(&[Tool::Promtool])?;
    let riverlog = broker::riverlog_binary(false)?;
    let scratch = Scratch::new("monitoring")?;
    let rules = scratch.path().join("rules.yml");
    fs::write(
        &rules,
        program(&riverlog)
            .args(["generate", "prometheus-rules"])
            .output()?,
    )?;
    program("promtool")
        .args(["check", "rules"])
        .arg(&rules)
        .shown_live()?;
    program(&riverlog)
        .args(["generate", "grafana", "--all"])
        .arg(scratch.path())
        .output()?;
    let mut queries = Vec::new();
    for entry in fs::read_dir(scratch.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") {
            expressions(
                &serde_json::from_str(&fs::read_to_string(&path)?)?,
                &mut queries,
            );
        }
    }
    // Rules that ask what the dashboards ask: what can't be read is refused.
    let mut text = "groups:\n- name: dashboards\n  rules:\n".to_owned();
    for (n, query) in queries.iter().enumerate() {
        let query = VARIABLES
            .iter()
            .fold(query.clone(), |q, (name, value)| q.replace(name, value));
        text.push_str(&format!(
            "  - record: dashboard:query_{n}\n    expr: {}\n",
            serde_json::to_string(&query)?
        ));
    }
    let asked = scratch.path().join("dashboards.yml");
    fs::write(&asked, text)?;
    program("promtool")
        .args(["check", "rules", "--lint=none"])
        .arg(&asked)
        .shown_live()?;
    println!(
        "monitoring: {} queries of dashboards can be read",
        queries.len()
    );
    Ok(())
}

fn expressions(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(expr)) = fields.get("expr") {
                out.push(expr.clone());
            }
            fields.values().for_each(|value| expressions(value, out));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, out)),
        _ => {}
    }
}
