//! Kafka's camel case in Rust's forms.

/// `TopicId` → `topic_id`; a Rust keyword becomes a raw identifier.
pub(super) fn field(name: &str) -> String {
    let snake = snake(name);
    match snake.as_str() {
        "match" | "type" | "ref" | "move" | "use" | "where" | "static" | "struct" | "mod" => {
            format!("r#{snake}")
        }
        _ => snake,
    }
}

/// `ListOffsetsRequest` → `list_offsets_request`; a run of capitals counts as one word.
pub(super) fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (i, c) in chars.iter().enumerate() {
        let after_lower = i > 0 && !chars[i - 1].is_uppercase();
        let before_lower = chars.get(i + 1).is_some_and(|n| n.is_lowercase());
        if c.is_uppercase() && i > 0 && (after_lower || before_lower) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_becomes_snake_case() {
        assert_eq!(snake("ListOffsetsRequest"), "list_offsets_request");
        assert_eq!(snake("KRaftVersionFeature"), "k_raft_version_feature");
        assert_eq!(snake("HMAC"), "hmac");
        assert_eq!(field("Match"), "r#match");
    }
}
