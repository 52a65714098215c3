//! One message in Rust: its structs, their defaults, decoders and encoders.

use std::fmt::Write as _;

use super::naming;
use super::schema::{Field, Kind, Message, Struct, Type, Versions};

/// The whole file of a message, before formatting.
pub(super) fn message(message: &Message) -> String {
    let mut body = String::new();
    for (i, st) in message.structs.iter().enumerate() {
        Emit { message, st }.all(i == 0, &mut body);
    }
    let kind = match message.kind {
        Kind::Request => "request",
        Kind::Response => "response",
    };
    let api = message
        .name
        .trim_end_matches("Request")
        .trim_end_matches("Response");
    let mut out = format!(
        "//! {api} {kind}: key {}, versions {}.\n\n#![allow(missing_docs)]\n\n",
        message.key,
        spoken(message),
    );
    out.push_str(&imports(&body));
    out.push_str(&body);
    out
}

/// The ranges of a message in words, for its documentation.
fn spoken(message: &Message) -> String {
    let Versions { low, high } = message.versions;
    let flexible = match message.flexible {
        f if f.is_empty() => "never flexible".to_owned(),
        f if f.covers(message.versions) => "all flexible".to_owned(),
        f => format!("flexible from {}", f.low),
    };
    let unstable = if message.newest_unstable {
        format!("; {high} isn't final")
    } else {
        String::new()
    };
    format!("{low} to {high}, {flexible}{unstable}")
}

fn imports(body: &str) -> String {
    let mut out = String::new();
    if mentions(body, "Bytes") {
        out.push_str("use bytes::Bytes;\n\n");
    }
    if mentions(body, "WriteRecords") {
        out.push_str("use super::flex::{self, WriteRecords};\n");
    }
    out.push_str("use crate::primitives::{DecodeError, EncodeError, Reader, Writer};\n");
    let ours: Vec<&str> = ["ErrorCode", "TopicId"]
        .into_iter()
        .filter(|name| mentions(body, name))
        .collect();
    if !ours.is_empty() {
        let _ = writeln!(out, "use crate::{{{}}};", ours.join(", "));
    }
    out.push('\n');
    out
}

/// A condition on `version` that holds within `range`, for versions within `of`; `None`: it always does.
fn condition(range: Versions, of: Versions) -> Option<String> {
    let Versions { low, high } = range;
    match (low <= of.low, of.high <= high) {
        (true, true) => None,
        (true, false) => Some(format!("version <= {high}")),
        (false, true) => Some(format!("version >= {low}")),
        (false, false) if low == high => Some(format!("version == {low}")),
        (false, false) => Some(format!("({low}..={high}).contains(&version)")),
    }
}

/// The opposite of [`condition`].
fn unless(range: Versions, of: Versions) -> Option<String> {
    let Versions { low, high } = range;
    match (low <= of.low, of.high <= high) {
        (true, true) => None,
        (true, false) => Some(format!("version > {high}")),
        (false, true) => Some(format!("version < {low}")),
        (false, false) => Some(format!("!({low}..={high}).contains(&version)")),
    }
}

/// Whether `word` occurs in `code` as a whole word.
fn mentions(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|w| w == word)
}

/// How a fixed-width type is called.
struct Fixed {
    rust: &'static str,
    /// Method of reader and writer.
    method: &'static str,
    size: usize,
}

fn fixed(ty: &Type) -> Option<Fixed> {
    let (rust, method, size) = match ty {
        Type::Bool => ("bool", "bool", 1),
        Type::Int8 => ("i8", "i8", 1),
        Type::Int16 => ("i16", "i16", 2),
        Type::Uint16 => ("u16", "u16", 2),
        Type::Int32 => ("i32", "i32", 4),
        Type::Int64 => ("i64", "i64", 8),
        Type::Float64 => ("f64", "f64", 8),
        Type::Uuid => ("[u8; 16]", "uuid", 16),
        _ => return None,
    };
    Some(Fixed { rust, method, size })
}

/// Error codes and topic ids have types of their own.
fn newtype(field: &Field) -> Option<&'static str> {
    match field.ty {
        Type::Int16 if field.name.ends_with("ErrorCode") => Some("ErrorCode"),
        Type::Uuid if field.name == "TopicId" => Some("TopicId"),
        _ => None,
    }
}

fn rust_type(ty: &Type) -> String {
    match ty {
        Type::String => "String".to_owned(),
        Type::Bytes | Type::Records => "Bytes".to_owned(),
        Type::Struct(name) => name.clone(),
        Type::Array(element) => format!("Vec<{}>", rust_type(element)),
        other => fixed(other).map_or_else(String::new, |f| f.rust.to_owned()),
    }
}

struct Emit<'a> {
    message: &'a Message,
    st: &'a Struct,
}

impl Emit<'_> {
    fn all(&self, top: bool, out: &mut String) {
        self.definition(top, out);
        self.default(out);
        let name = &self.st.name;
        let _ = writeln!(out, "impl {name} {{");
        self.decode(top, out);
        out.push('\n');
        self.encode(top, out);
        out.push_str("}\n\n");
    }

    fn definition(&self, top: bool, out: &mut String) {
        let derived = if self.derives_default() {
            ", Default"
        } else {
            ""
        };
        if top {
            let _ = writeln!(out, "/// Versions {}.", spoken(self.message));
        }
        let _ = writeln!(
            out,
            "#[derive(Clone, Debug, PartialEq{derived})]\npub struct {} {{",
            self.st.name
        );
        for field in &self.st.fields {
            let ty = newtype(field).map_or_else(|| rust_type(&field.ty), str::to_owned);
            let ty = if field.is_option() {
                format!("Option<{ty}>")
            } else {
                ty
            };
            let _ = writeln!(out, "pub {}: {ty},", naming::field(&field.name));
        }
        out.push_str("}\n\n");
    }

    fn derives_default(&self) -> bool {
        self.st
            .fields
            .iter()
            .all(|f| natural_default(f) == default_value(f))
    }

    fn default(&self, out: &mut String) {
        if self.derives_default() {
            return;
        }
        let _ = writeln!(
            out,
            "impl Default for {} {{\nfn default() -> Self {{\nSelf {{",
            self.st.name
        );
        for field in &self.st.fields {
            let _ = writeln!(
                out,
                "{}: {},",
                naming::field(&field.name),
                default_value(field)
            );
        }
        out.push_str("}\n}\n}\n\n");
    }

    /// A condition on `version` that holds within `range`; `None` when it always does in this struct.
    fn when(&self, range: Versions) -> Option<String> {
        condition(range, self.st.versions)
    }

    /// As [`Emit::when`], where it is known already that the version is flexible.
    fn when_flexible(&self, range: Versions) -> Option<String> {
        condition(range, self.message.flexible.and(self.st.versions))
    }

    /// Whether flexible, in this struct: always, never, or by a variable `flex`.
    fn flex(&self) -> &'static str {
        let here = self.message.flexible.and(self.st.versions);
        if here.is_empty() {
            "false"
        } else if here == self.st.versions {
            "true"
        } else {
            "flex"
        }
    }

    /// What both bodies begin with: the check of the version, and the variable `flex` when it's one.
    fn prologue(&self, top: bool, wrong_version: &str, out: &mut String) {
        if top {
            let Versions { low, high } = self.message.versions;
            let _ = writeln!(
                out,
                "if !({low}..={high}).contains(&version) {{ {wrong_version} }}"
            );
        }
        if self.flex() == "flex" {
            let _ = writeln!(out, "let flex = version >= {};", self.message.flexible.low);
        }
    }

    fn tagged(&self) -> Vec<&Field> {
        let mut tagged: Vec<&Field> = self.st.fields.iter().filter(|f| f.tag.is_some()).collect();
        tagged.sort_by_key(|f| f.tag);
        tagged
    }

    fn version_is_used(&self, body: &str) -> &'static str {
        if mentions(body, "version") {
            "version"
        } else {
            "_version"
        }
    }

    fn decode(&self, top: bool, out: &mut String) {
        let mut body = String::new();
        self.prologue(
            top,
            &format!(
                "return Err(DecodeError::Version {{ message: {:?}, version }});",
                self.st.name
            ),
            &mut body,
        );
        let known: Vec<&Field> = self.tagged();
        let _ = writeln!(
            body,
            "let {}m = Self {{",
            if known.is_empty() { "" } else { "mut " }
        );
        for field in &self.st.fields {
            let name = naming::field(&field.name);
            let value = if field.tag.is_some() {
                default_value(field)
            } else {
                let read = self.read_field(field);
                match self.when(field.versions) {
                    None => read,
                    Some(when) => {
                        format!("if {when} {{ {read} }} else {{ {} }}", default_value(field))
                    }
                }
            };
            let _ = writeln!(body, "{name}: {value},");
        }
        body.push_str("};\n");
        let tags = if known.is_empty() {
            "r.skip_tagged_fields()?;".to_owned()
        } else {
            let mut arms = String::new();
            for field in &known {
                let guard = self
                    .when_flexible(field.versions)
                    .map(|when| format!("if {when}"))
                    .unwrap_or_default();
                let _ = writeln!(
                    arms,
                    "{} {guard} => m.{} = {},",
                    field.tag.unwrap_or_default(),
                    naming::field(&field.name),
                    self.read_field(field)
                );
            }
            format!(
                "r.tagged_fields(|tag, r| {{ match tag {{ {arms} _ => return Ok(false), }} Ok(true) }})?;"
            )
        };
        match self.flex() {
            "true" => body.push_str(&tags),
            "flex" => {
                let _ = writeln!(body, "if flex {{ {tags} }}");
            }
            _ => {}
        }
        body.push_str("Ok(m)\n");
        let visible = if top {
            "/// Reads it from `r`; bytes after it are left there.\npub "
        } else {
            "pub(super) "
        };
        let _ = writeln!(
            out,
            "{visible}fn decode(r: &mut Reader<'_>, {}: i16) -> Result<Self, DecodeError> {{\n{body}}}",
            self.version_is_used(&body)
        );
    }

    fn read_field(&self, field: &Field) -> String {
        if !field.is_option() {
            return match newtype(field) {
                Some("ErrorCode") => "ErrorCode(r.i16()?)".to_owned(),
                Some(_) => "r.uuid()?".to_owned(),
                None => self.read(field),
            };
        }
        if field.nullable.is_empty() {
            return format!("Some({})", self.read(field));
        }
        let nullable = self.read_nullable(field);
        match self.when(field.nullable) {
            Some(when) if !field.nullable.covers(field.versions) => {
                format!(
                    "if {when} {{ {nullable} }} else {{ Some({}) }}",
                    self.read(field)
                )
            }
            _ => nullable,
        }
    }

    fn read(&self, field: &Field) -> String {
        let flex = self.flex();
        match &field.ty {
            Type::String => format!("r.string_in({flex})?"),
            Type::Bytes | Type::Records => format!("r.bytes_in({flex})?"),
            Type::Struct(name) => format!("{name}::decode(r, version)?"),
            Type::Array(element) => format!(
                "r.array_in({flex}, {})?",
                self.read_element(element, field.versions)
            ),
            Type::Uuid => "r.uuid()?.0".to_owned(),
            other => format!("r.{}()?", fixed(other).map_or("", |f| f.method)),
        }
    }

    fn read_nullable(&self, field: &Field) -> String {
        let flex = self.flex();
        match &field.ty {
            Type::String => format!("r.nullable_string_in({flex})?"),
            Type::Bytes | Type::Records => format!("r.nullable_bytes_in({flex})?"),
            Type::Struct(name) => format!("r.nullable_struct(|r| {name}::decode(r, version))?"),
            Type::Array(element) => {
                format!(
                    "r.nullable_array_in({flex}, {})?",
                    self.read_element(element, field.versions)
                )
            }
            other => unreachable!("{other:?} is never null in the protocol"),
        }
    }

    /// The smallest size of an element, and a closure that reads it.
    fn read_element(&self, ty: &Type, versions: Versions) -> String {
        let sizes = versions.iter().map(|v| min_size(self.message, ty, v));
        let min = sizes.min();
        let read = match ty {
            Type::Struct(name) => format!("|r| {name}::decode(r, version)"),
            Type::String => format!("|r| r.string_in({})", self.flex()),
            Type::Uuid => "|r| r.uuid().map(|id| id.0)".to_owned(),
            other => format!("Reader::{}", fixed(other).map_or("", |f| f.method)),
        };
        format!("{}, {read}", min.unwrap_or(1).max(1))
    }

    fn encode(&self, top: bool, out: &mut String) {
        let mut body = String::new();
        self.prologue(
            top,
            &format!(
                "return w.fail(EncodeError::Version {{ field: {:?}, version }});",
                self.st.name
            ),
            &mut body,
        );
        for field in self.st.fields.iter().filter(|f| f.tag.is_none()) {
            let write = self.write_field(field);
            let Some(when) = self.when(field.versions) else {
                let _ = writeln!(body, "{write};");
                continue;
            };
            let _ = write!(body, "if {when} {{ {write}; }}");
            if !field.ignorable {
                let _ = write!(
                    body,
                    "else if {} {{ {} }}",
                    not_default(field),
                    self.no_place(field)
                );
            }
            body.push('\n');
        }
        self.encode_tags(&mut body);
        let doc = "/// Writes it; see [`Writer::finish`] for what can't be written.";
        let version = self.version_is_used(&body);
        if !self.sends_records() {
            let visible = if top {
                format!("{doc}\npub ")
            } else {
                "pub(super) ".to_owned()
            };
            let _ = writeln!(
                out,
                "{visible}fn encode(&self, w: &mut Writer<'_>, {version}: i16) {{\n{body}}}"
            );
            return;
        }
        if top {
            let _ = writeln!(
                out,
                "{doc}\npub fn encode(&self, w: &mut Writer<'_>, version: i16) {{\n\
                 self.encode_with(w, version, &mut flex::copy_records);\n}}\n"
            );
        }
        let _ = writeln!(
            out,
            "/// As `encode`, with the records left to `records`.\n\
             pub(super) fn encode_with(&self, w: &mut Writer<'_>, version: i16, records: &mut WriteRecords<'_>) {{\n{body}}}"
        );
    }

    fn sends_records(&self) -> bool {
        self.message
            .sends_records(&Type::Struct(self.st.name.clone()))
    }

    fn encode_tags(&self, body: &mut String) {
        let tagged = self.tagged();
        for field in &tagged {
            if let Some(unless) = unless(field.versions, self.st.versions)
                && !field.ignorable
            {
                let _ = writeln!(
                    body,
                    "if {unless} && {} {{ {} }}",
                    not_default(field),
                    self.no_place(field)
                );
            }
        }
        let mut section = String::new();
        if tagged.is_empty() {
            section.push_str("w.empty_tagged_fields();");
        } else {
            let mut counts = Vec::new();
            let mut writes = String::new();
            for field in &tagged {
                let name = naming::field(&field.name);
                let present = match self.when_flexible(field.versions) {
                    Some(when) => format!("{when} && {}", not_default(field)),
                    None => not_default(field),
                };
                let _ = writeln!(section, "let has_{name} = {present};");
                counts.push(format!("usize::from(has_{name})"));
                let _ = writeln!(
                    writes,
                    "if has_{name} {{ w.tagged_field({}, |w| {}); }}",
                    field.tag.unwrap_or_default(),
                    self.write_field(field)
                );
            }
            let _ = writeln!(
                section,
                "w.tagged_fields_len({});\n{writes}",
                counts.join(" + ")
            );
        }
        match self.flex() {
            "true" => body.push_str(&section),
            "flex" => {
                let _ = writeln!(body, "if flex {{ {section} }}");
            }
            _ => {}
        }
    }

    fn no_place(&self, field: &Field) -> String {
        format!(
            "w.fail(EncodeError::Version {{ field: \"{}.{}\", version }});",
            self.st.name, field.name
        )
    }

    fn write_field(&self, field: &Field) -> String {
        let name = naming::field(&field.name);
        let ty = &field.ty;
        if !field.is_option() {
            return match newtype(field) {
                Some("ErrorCode") => format!("w.i16(self.{name}.0)"),
                Some(_) => format!("w.uuid(self.{name})"),
                None if fixed(ty).is_some() => self.write(ty, &format!("self.{name}")),
                None => self.write(ty, &format!("&self.{name}")),
            };
        }
        let value = match ty {
            Type::Struct(_) => format!("self.{name}.as_ref()"),
            _ => format!("self.{name}.as_deref()"),
        };
        let plain = format!(
            "if let Some(value) = {value} {{ {} }} else {{ w.fail(EncodeError::Null {{ field: \"{}.{}\" }}) }}",
            self.write(ty, "value"),
            self.st.name,
            field.name
        );
        if field.nullable.is_empty() {
            return plain;
        }
        let nullable = self.write_nullable(ty, &value);
        match self.when(field.nullable) {
            Some(when) if !field.nullable.covers(field.versions) => {
                format!("if {when} {{ {nullable} }} else {plain}")
            }
            _ => nullable,
        }
    }

    fn write(&self, ty: &Type, value: &str) -> String {
        let flex = self.flex();
        match ty {
            Type::String => format!("w.string_in({flex}, {value})"),
            Type::Records if self.sends_records() => format!("records(w, {flex}, Some({value}))"),
            Type::Bytes | Type::Records => format!("w.bytes_in({flex}, {value})"),
            Type::Struct(_) => {
                format!("{}.encode(w, version)", value.trim_start_matches('&'))
            }
            Type::Array(element) => format!(
                "w.array_in({flex}, {value}, {})",
                self.write_element(element)
            ),
            Type::Uuid => format!("w.raw(&{value})"),
            other => format!("w.{}({value})", fixed(other).map_or("", |f| f.method)),
        }
    }

    fn write_nullable(&self, ty: &Type, value: &str) -> String {
        let flex = self.flex();
        match ty {
            Type::String => format!("w.nullable_string_in({flex}, {value})"),
            Type::Records if self.sends_records() => format!("records(w, {flex}, {value})"),
            Type::Bytes | Type::Records => format!("w.nullable_bytes_in({flex}, {value})"),
            Type::Struct(_) => {
                format!("w.nullable_struct({value}, |w, v| v.encode(w, version))")
            }
            Type::Array(element) => format!(
                "w.nullable_array_in({flex}, {value}, {})",
                self.write_element(element)
            ),
            other => unreachable!("{other:?} is never null in the protocol"),
        }
    }

    fn write_element(&self, ty: &Type) -> String {
        match ty {
            Type::Struct(_) if self.message.sends_records(ty) => {
                "|w, v| v.encode_with(w, version, records)".to_owned()
            }
            Type::Struct(_) => "|w, v| v.encode(w, version)".to_owned(),
            Type::String => format!("|w, v| w.string_in({}, v)", self.flex()),
            Type::Uuid => "|w, v| w.raw(v)".to_owned(),
            other => format!("|w, v| w.{}(*v)", fixed(other).map_or("", |f| f.method)),
        }
    }
}

/// What `Default` gives for the Rust type.
fn natural_default(field: &Field) -> String {
    if field.is_option() {
        return "None".to_owned();
    }
    match (newtype(field), &field.ty) {
        (Some("ErrorCode"), _) => "ErrorCode::NONE".to_owned(),
        (Some(_), _) => "TopicId::ZERO".to_owned(),
        (None, Type::Bool) => "false".to_owned(),
        (None, Type::Float64) => "0.0".to_owned(),
        (None, Type::Uuid) => "[0; 16]".to_owned(),
        (None, Type::String) => "String::new()".to_owned(),
        (None, Type::Bytes | Type::Records) => "Bytes::new()".to_owned(),
        (None, Type::Struct(name)) => format!("{name}::default()"),
        (None, Type::Array(_)) => "Vec::new()".to_owned(),
        (None, _) => "0".to_owned(),
    }
}

/// What the definition says a field is when nobody sets it.
fn default_value(field: &Field) -> String {
    if field.default_is_null() {
        return "None".to_owned();
    }
    if field.is_option() {
        let inner = match &field.ty {
            Type::String => "String::new()".to_owned(),
            Type::Bytes | Type::Records => "Bytes::new()".to_owned(),
            Type::Struct(name) => format!("{name}::default()"),
            _ => "Vec::new()".to_owned(),
        };
        return format!("Some({inner})");
    }
    let Some(text) = field.default.as_deref().filter(|t| !t.is_empty()) else {
        return natural_default(field);
    };
    match (newtype(field), &field.ty) {
        (Some(newtype), _) => format!("{newtype}({text})"),
        (None, Type::Bool) => text.to_lowercase(),
        (None, Type::String) => format!("{text:?}.to_owned()"),
        (None, Type::Float64) if !text.contains('.') => format!("{text}.0"),
        _ => text.to_owned(),
    }
}

/// An expression that is true when the field differs from its default.
fn not_default(field: &Field) -> String {
    let name = naming::field(&field.name);
    if field.default_is_null() {
        return format!("self.{name}.is_some()");
    }
    if field.is_option() {
        return match &field.ty {
            Type::Struct(_) => format!("self.{name}.as_ref() != Some(&Default::default())"),
            _ => format!("self.{name}.as_ref().is_none_or(|v| !v.is_empty())"),
        };
    }
    let default = default_value(field);
    match &field.ty {
        Type::Bool if default == "false" => format!("self.{name}"),
        Type::Bool => format!("!self.{name}"),
        Type::String if default == "String::new()" => format!("!self.{name}.is_empty()"),
        Type::Bytes | Type::Records | Type::Array(_) => format!("!self.{name}.is_empty()"),
        Type::Struct(_) => format!("self.{name} != Default::default()"),
        _ => format!("self.{name} != {default}"),
    }
}

/// The fewest bytes that a value of the type takes in a version.
fn min_size(message: &Message, ty: &Type, version: i16) -> usize {
    let flexible = message.flexible.contains(version);
    match ty {
        Type::String => 1 + usize::from(!flexible),
        Type::Bytes | Type::Records | Type::Array(_) => 1 + 3 * usize::from(!flexible),
        Type::Struct(name) => {
            let fields = message.find(name).map_or(&[][..], |s| &s.fields);
            let present = fields
                .iter()
                .filter(|f| f.tag.is_none() && f.versions.contains(version));
            let sum: usize = present
                .map(|f| match (&f.ty, f.nullable.contains(version)) {
                    (Type::Struct(_), true) => 1,
                    (ty, _) => min_size(message, ty, version),
                })
                .sum();
            sum + usize::from(flexible)
        }
        other => fixed(other).map_or(1, |f| f.size),
    }
}
