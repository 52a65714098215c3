//! The model of a message: what one definition says, with version ranges already cut to what can occur.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Result;

/// A range of versions, both ends included; empty when `low > high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) low: i16,
    pub(super) high: i16,
}

impl Versions {
    const NONE: Versions = Versions { low: 0, high: -1 };

    /// `none`, `3`, `3-7` or `3+`.
    fn parse(text: &str) -> Result<Versions> {
        if text == "none" {
            return Ok(Versions::NONE);
        }
        let (low, high) = if let Some(low) = text.strip_suffix('+') {
            (low.parse()?, i16::MAX)
        } else if let Some((low, high)) = text.split_once('-') {
            (low.parse()?, high.parse()?)
        } else {
            let only = text.parse()?;
            (only, only)
        };
        Ok(Versions { low, high })
    }

    pub(super) fn and(self, other: Versions) -> Versions {
        Versions {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.low > self.high
    }

    pub(super) fn contains(self, version: i16) -> bool {
        (self.low..=self.high).contains(&version)
    }

    /// Whether all of `other` lies in it.
    pub(super) fn covers(self, other: Versions) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    pub(super) fn iter(self) -> impl Iterator<Item = i16> {
        self.low..=self.high
    }
}

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Request,
    Response,
}

/// One request or response.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) key: i16,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) versions: Versions,
    pub(super) flexible: Versions,
    /// A request that brokers (not only controllers) take.
    pub(super) for_brokers: bool,
    /// The newest version isn't final in this release.
    pub(super) newest_unstable: bool,
    /// The message itself first, then what it holds.
    pub(super) structs: Vec<Struct>,
}

impl Message {
    pub(super) fn find(&self, name: &str) -> Option<&Struct> {
        self.structs.iter().find(|s| s.name == name)
    }

    /// Whether a value of the type has record batches somewhere in it that a broker sends: those are not to
    /// be copied into the frame.
    pub(super) fn sends_records(&self, ty: &Type) -> bool {
        self.kind == Kind::Response
            && match ty {
                Type::Records => true,
                other => other
                    .struct_name()
                    .and_then(|name| self.find(name))
                    .is_some_and(|st| st.fields.iter().any(|f| self.sends_records(&f.ty))),
            }
    }
}

/// A named list of fields.
#[derive(Debug)]
pub(super) struct Struct {
    pub(super) name: String,
    /// Where it can occur.
    pub(super) versions: Versions,
    pub(super) fields: Vec<Field>,
}

/// One field.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    /// Cut to the versions of its struct; never empty.
    pub(super) versions: Versions,
    /// Cut to its versions.
    pub(super) nullable: Versions,
    /// A tagged field (KIP-482) is one in all its versions.
    pub(super) tag: Option<u32>,
    pub(super) default: Option<String>,
    /// May be dropped silently where the version doesn't have it.
    pub(super) ignorable: bool,
}

impl Field {
    /// Whether Rust shows it as an `Option`.
    pub(super) fn is_option(&self) -> bool {
        !self.nullable.is_empty() || self.default_is_null()
    }

    pub(super) fn default_is_null(&self) -> bool {
        self.default.as_deref() == Some("null")
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    /// Record batches; as bytes on the wire.
    Records,
    Struct(String),
    Array(Box<Type>),
}

impl Type {
    fn parse(text: &str) -> Result<Type> {
        if let Some(element) = text.strip_prefix("[]") {
            return Ok(Type::Array(Box::new(Type::parse(element)?)));
        }
        Ok(match text {
            "bool" => Type::Bool,
            "int8" => Type::Int8,
            "int16" => Type::Int16,
            "uint16" => Type::Uint16,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "float64" => Type::Float64,
            "uuid" => Type::Uuid,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "records" => Type::Records,
            name if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
                Type::Struct(name.to_owned())
            }
            _ => return Err(format!("unknown type {text:?}").into()),
        })
    }

    pub(super) fn struct_name(&self) -> Option<&str> {
        match self {
            Type::Struct(name) => Some(name),
            Type::Array(element) => element.struct_name(),
            _ => None,
        }
    }
}

/// Reads one definition. `None`: not a request or response, or none of its versions is alive.
pub(super) fn parse(text: &str) -> Result<Option<Message>> {
    let json: Value = serde_json::from_str(&without_comments(text))?;
    let kind = match str_of(&json, "type")? {
        "request" => Kind::Request,
        "response" => Kind::Response,
        _ => return Ok(None),
    };
    let versions = Versions::parse(str_of(&json, "validVersions")?)?;
    if versions.is_empty() {
        return Ok(None);
    }
    let name = str_of(&json, "name")?.to_owned();
    let key = json["apiKey"].as_i64().ok_or("no apiKey")?;
    let listeners = json["listeners"].as_array();
    let mut collector = Collector {
        common: BTreeMap::new(),
        done: Vec::new(),
        open: Vec::new(),
    };
    for common in json["commonStructs"].as_array().into_iter().flatten() {
        let uses = Versions::parse(str_of(common, "versions")?)?;
        collector
            .common
            .insert(str_of(common, "name")?, (uses, &common["fields"]));
    }
    collector.collect(&name, versions, &json["fields"])?;
    let mut message = Message {
        key: i16::try_from(key)?,
        kind,
        name,
        versions,
        flexible: Versions::parse(str_of(&json, "flexibleVersions")?)?.and(versions),
        for_brokers: listeners.is_some_and(|l| l.iter().any(|v| v == "broker")),
        newest_unstable: json["latestVersionUnstable"].as_bool().unwrap_or(false),
        structs: collector.done,
    };
    add_own(&mut message);
    for field in message.structs.iter().flat_map(|s| &s.fields) {
        if let Some(name) = field.ty.struct_name()
            && message.find(name).is_none()
        {
            return Err(format!("{name} is used but nowhere defined").into());
        }
    }
    Ok(Some(message))
}

/// Flags of Riverlog's own, as message, struct, field and tag. Whoever doesn't know them passes them over (KIP-482); they are sent only when
/// they are set. Kafka numbers its tags from 0.
const OWN: &[(&str, &str, &str, u32)] = &[(
    "DescribeClusterResponse",
    "DescribeClusterBroker",
    "DiskAiling",
    10_000,
)];

fn add_own(message: &mut Message) {
    for (of, within, name, tag) in OWN {
        let structs = message.structs.iter_mut();
        for found in structs.filter(|s| message.name == *of && s.name == *within) {
            found.fields.push(Field {
                name: (*name).to_owned(),
                ty: Type::Bool,
                versions: found.versions,
                nullable: Versions::NONE,
                tag: Some(*tag),
                default: None,
                ignorable: true,
            });
        }
    }
}

/// The definitions are JSON with whole-line comments.
fn without_comments(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn str_of<'a>(json: &'a Value, key: &str) -> Result<&'a str> {
    json[key]
        .as_str()
        .ok_or_else(|| format!("no {key:?} in {json:.80}").into())
}

struct Collector<'a> {
    /// Structs that several fields share: name, versions and fields.
    common: BTreeMap<&'a str, (Versions, &'a Value)>,
    done: Vec<Struct>,
    /// The structs being read; one that holds itself would make the decoder recurse as deep as a peer likes.
    open: Vec<String>,
}

impl<'a> Collector<'a> {
    fn collect(&mut self, name: &str, versions: Versions, fields: &'a Value) -> Result<()> {
        if self.open.iter().any(|n| n == name) {
            return Err(format!("{name} holds itself; the decoder needs a bound first").into());
        }
        if self.done.iter().any(|s| s.name == name) {
            return Ok(());
        }
        self.open.push(name.to_owned());
        let place = self.done.len();
        self.done.push(Struct {
            name: name.to_owned(),
            versions,
            fields: Vec::new(),
        });
        let mut parsed = Vec::new();
        for json in fields.as_array().into_iter().flatten() {
            if let Some(field) =
                field(json, versions).map_err(|e| format!("{name}.{}: {e}", json["name"]))?
            {
                parsed.push(field);
            }
            self.nested(json, versions)?;
        }
        self.done[place].fields = parsed;
        self.open.pop();
        Ok(())
    }

    fn nested(&mut self, json: &'a Value, outer: Versions) -> Result<()> {
        let ty = Type::parse(str_of(json, "type")?)?;
        let Some(name) = ty.struct_name() else {
            return Ok(());
        };
        let versions = Versions::parse(str_of(json, "versions")?)?.and(outer);
        if versions.is_empty() {
            return Ok(());
        }
        match self.common.get(name) {
            // Shared by fields of different ranges, so its own range counts, cut to the message's.
            Some((own, fields)) => {
                let message = self.done[0].versions;
                self.collect(name, own.and(message), fields)
            }
            None => self.collect(name, versions, &json["fields"]),
        }
    }
}

/// `None`: no version of the struct has it any more.
fn field(json: &Value, outer: Versions) -> Result<Option<Field>> {
    let versions = Versions::parse(str_of(json, "versions")?)?.and(outer);
    if versions.is_empty() {
        return Ok(None);
    }
    let range = |key: &str| match json[key].as_str() {
        Some(text) => Versions::parse(text),
        None => Ok(Versions::NONE),
    };
    let tag = match json["tag"].as_u64() {
        Some(tag) => {
            if !range("taggedVersions")?.covers(versions) {
                return Err("tagged in some versions only; the generator doesn't know that".into());
            }
            Some(u32::try_from(tag)?)
        }
        None => None,
    };
    if !json["flexibleVersions"].is_null() {
        return Err("has flexible versions of its own; the generator doesn't know that".into());
    }
    let default = match &json["default"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Ok(Some(Field {
        name: str_of(json, "name")?.to_owned(),
        ty: Type::parse(str_of(json, "type")?)?,
        versions,
        nullable: range("nullableVersions")?.and(versions),
        tag,
        default,
        ignorable: json["ignorable"].as_bool().unwrap_or(false),
    }))
}
