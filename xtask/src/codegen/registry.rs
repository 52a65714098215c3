//! What spans all messages: the module, the table of API keys, the enums over all requests and responses.

use std::fmt::Write as _;

use super::Result;
use super::naming;
use super::schema::{Kind, Message};

/// Files of the folder that people write.
const BY_HAND: &[&str] = &["flex"];

/// Their public counterparts.
const BY_HAND_PUBLIC: &[&str] = &["fetch_layout", "fetch_view", "produce_view"];

/// `Produce` of `ProduceRequest`.
fn api(message: &Message) -> &str {
    message
        .name
        .strip_suffix(match message.kind {
            Kind::Request => "Request",
            Kind::Response => "Response",
        })
        .unwrap_or(&message.name)
}

fn requests(messages: &[Message]) -> impl Iterator<Item = &Message> {
    messages.iter().filter(|m| m.kind == Kind::Request)
}

/// `mod.rs`.
pub(super) fn module(messages: &[Message]) -> String {
    let mut modules: Vec<(String, bool)> = messages
        .iter()
        .map(|m| (naming::snake(&m.name), true))
        .chain(["any", "api_key"].map(|m| (m.to_owned(), false)))
        .chain(BY_HAND.iter().map(|m| ((*m).to_owned(), false)))
        .chain(BY_HAND_PUBLIC.iter().map(|m| ((*m).to_owned(), true)))
        .collect();
    modules.sort();
    let mut out = String::from(
        "//! The requests and responses that clients and brokers exchange, in all their versions.\n\
         //!\n\
         //! A message is a plain struct whose fields carry Kafka's names. What a version doesn't have is left at\n\
         //! its default when decoded; when encoded, a value other than the default is an error, unless the\n\
         //! protocol says that the field may be dropped. Unknown tagged fields are skipped at every level.\n\
         //! Structs within a message lie in its module: `fetch_request::FetchTopic`.\n\n",
    );
    for (module, public) in &modules {
        let visible = if *public { "pub " } else { "" };
        let _ = writeln!(out, "{visible}mod {module};");
    }
    out.push_str(
        "\npub use any::{AnyRequest, AnyResponse, Request, Response};\npub use api_key::ApiKey;\n",
    );
    for message in messages {
        let _ = writeln!(
            out,
            "pub use {}::{};",
            naming::snake(&message.name),
            message.name
        );
    }
    out
}

/// `api_key.rs`.
pub(super) fn api_keys(messages: &[Message]) -> Result<String> {
    let mut variants = String::new();
    let mut from = String::new();
    let mut names = String::new();
    let mut ranges = String::new();
    let mut unstable = String::new();
    let mut all = String::new();
    for request in requests(messages) {
        let (api, key) = (api(request), request.key);
        let range = request.versions;
        let flexible = if request.flexible.is_empty() {
            "None".to_owned()
        } else {
            format!("Some({})", request.flexible.low)
        };
        let _ = writeln!(variants, "{api} = {key},");
        let _ = writeln!(from, "{key} => ApiKey::{api},");
        let _ = writeln!(names, "ApiKey::{api} => {api:?},");
        let _ = writeln!(
            ranges,
            "ApiKey::{api} => ({}, {}, {flexible}),",
            range.low, range.high
        );
        let _ = writeln!(all, "ApiKey::{api},");
        if request.newest_unstable {
            if !unstable.is_empty() {
                unstable.push_str(" | ");
            }
            let _ = write!(unstable, "ApiKey::{api}");
        }
    }
    if unstable.is_empty() {
        return Err("no API has an unstable version; drop newest_is_final from the output".into());
    }
    Ok(format!(
        "//! The table of APIs: number, name, versions, header versions.\n\n\
use std::fmt;\nuse std::ops::RangeInclusive;\n\n\
/// An API that brokers serve to clients, by its number on the wire. Keys of controllers are not among them.\n\
#[allow(missing_docs)]\n\
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\n\
pub enum ApiKey {{ {variants} }}\n\n\
impl ApiKey {{\n\
/// All, in order of their numbers.\npub const ALL: &[ApiKey] = &[{all}];\n\n\
/// `None`: not an API that brokers serve to clients.\n\
pub fn from_i16(key: i16) -> Option<ApiKey> {{ Some(match key {{ {from} _ => return None, }}) }}\n\n\
/// Its number on the wire.\npub fn number(self) -> i16 {{ self as i16 }}\n\n\
/// Kafka's name for it, without `Request`.\npub fn name(self) -> &'static str {{ match self {{ {names} }} }}\n\n\
/// Oldest version, newest version, first flexible one.\n\
fn range(self) -> (i16, i16, Option<i16>) {{ match self {{ {ranges} }} }}\n\n\
/// The versions that this codec speaks, the newest one even when it isn't final.\n\
pub fn versions(self) -> RangeInclusive<i16> {{ let (low, high, _) = self.range(); low..=high }}\n\n\
/// The oldest version of this codec.\npub fn min_version(self) -> i16 {{ self.range().0 }}\n\n\
/// The newest version of this codec.\npub fn max_version(self) -> i16 {{ self.range().1 }}\n\n\
/// The newest version that is final; what a broker may advertise.\n\
pub fn max_stable_version(self) -> i16 {{ self.max_version() - i16::from(!self.newest_is_final()) }}\n\n\
/// Whether the newest version is final in the Kafka release that the codec was made from.\n\
pub fn newest_is_final(self) -> bool {{ !matches!(self, {unstable}) }}\n\n\
/// The first version with compact lengths and tagged fields (KIP-482). `None`: it has none.\n\
pub fn flexible_from(self) -> Option<i16> {{ self.range().2 }}\n\n\
/// Whether that version has compact lengths and tagged fields.\n\
pub fn is_flexible(self, version: i16) -> bool {{ self.flexible_from().is_some_and(|first| version >= first) }}\n\n\
/// Version of the header before a request of that version: 2 with tagged fields, else 1.\n\
pub fn request_header_version(self, version: i16) -> i16 {{ 1 + i16::from(self.is_flexible(version)) }}\n\n\
/// Version of the header before a response of that version: 1 with tagged fields, else 0. Always 0 for\n\
/// ApiVersions, whose client doesn't yet know what the broker speaks (KIP-511).\n\
pub fn response_header_version(self, version: i16) -> i16 {{ i16::from(self != ApiKey::ApiVersions && self.is_flexible(version)) }}\n\
}}\n\n\
impl fmt::Display for ApiKey {{ fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {{ f.write_str(self.name()) }} }}\n"
    ))
}

/// `any.rs`.
pub(super) fn any(messages: &[Message]) -> Result<String> {
    let apis: Vec<&str> = requests(messages).map(api).collect();
    let mut imports = vec!["ApiKey".to_owned()];
    imports.extend(messages.iter().map(|m| m.name.clone()));
    let mut out = format!(
        "//! All requests and all responses as one type each, and what one request has to do with its response.\n\n\
use super::{{{}}};\nuse crate::primitives::{{DecodeError, Reader, Writer}};\n\n\
/// A request: knows its key and what answers it.\n\
pub trait Request: Sized {{\n/// Its API.\nconst KEY: ApiKey;\n/// What answers it.\ntype Response: Response;\n\
/// Reads one of that version.\nfn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError>;\n\
/// Writes it in that version.\nfn encode(&self, w: &mut Writer<'_>, version: i16);\n}}\n\n\
/// A response: knows its key.\n\
pub trait Response: Sized {{\n/// Its API.\nconst KEY: ApiKey;\n\
/// Reads one of that version.\nfn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError>;\n\
/// Writes it in that version.\nfn encode(&self, w: &mut Writer<'_>, version: i16);\n}}\n\n",
        imports.join(", ")
    );
    // One macro instead of five places for each API keeps file and compile time small.
    let _ = write!(
        out,
        r"macro_rules! apis {{
    ($($api:ident: $request:ident, $response:ident;)*) => {{
        /// Any request.
        #[allow(missing_docs)]
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyRequest {{ $($api($request),)* }}

        /// Any response.
        #[allow(missing_docs)]
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyResponse {{ $($api($response),)* }}

        impl AnyRequest {{
            /// Its API.
            pub fn key(&self) -> ApiKey {{
                match self {{ $(AnyRequest::$api(_) => ApiKey::$api,)* }}
            }}
            /// Reads one; bytes after it are left in `r`.
            pub fn decode(key: ApiKey, version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {{
                match key {{ $(ApiKey::$api => $request::decode(r, version).map(AnyRequest::$api),)* }}
            }}
            /// Writes it; see [`Writer::finish`] for what can't be written.
            pub fn encode(&self, w: &mut Writer<'_>, version: i16) {{
                match self {{ $(AnyRequest::$api(m) => m.encode(w, version),)* }}
            }}
            /// The request of that API with all fields at their defaults.
            pub fn default_of(key: ApiKey) -> Self {{
                match key {{ $(ApiKey::$api => AnyRequest::$api($request::default()),)* }}
            }}
        }}

        impl AnyResponse {{
            /// Its API.
            pub fn key(&self) -> ApiKey {{
                match self {{ $(AnyResponse::$api(_) => ApiKey::$api,)* }}
            }}
            /// Reads one; bytes after it are left in `r`.
            pub fn decode(key: ApiKey, version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError> {{
                match key {{ $(ApiKey::$api => $response::decode(r, version).map(AnyResponse::$api),)* }}
            }}
            /// Writes it; see [`Writer::finish`] for what can't be written.
            pub fn encode(&self, w: &mut Writer<'_>, version: i16) {{
                match self {{ $(AnyResponse::$api(m) => m.encode(w, version),)* }}
            }}
            /// The response of that API with all fields at their defaults.
            pub fn default_of(key: ApiKey) -> Self {{
                match key {{ $(ApiKey::$api => AnyResponse::$api($response::default()),)* }}
            }}
        }}

        $(
            impl Request for $request {{
                const KEY: ApiKey = ApiKey::$api;
                type Response = $response;
                fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError> {{
                    $request::decode(r, version)
                }}
                fn encode(&self, w: &mut Writer<'_>, version: i16) {{
                    $request::encode(self, w, version);
                }}
            }}
            impl Response for $response {{
                const KEY: ApiKey = ApiKey::$api;
                fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError> {{
                    $response::decode(r, version)
                }}
                fn encode(&self, w: &mut Writer<'_>, version: i16) {{
                    $response::encode(self, w, version);
                }}
            }}
            impl From<$request> for AnyRequest {{
                fn from(m: $request) -> Self {{ AnyRequest::$api(m) }}
            }}
            impl From<$response> for AnyResponse {{
                fn from(m: $response) -> Self {{ AnyResponse::$api(m) }}
            }}
        )*
    }};
}}

apis! {{
"
    );
    for api in apis {
        let request = format!("{api}Request");
        let response = format!("{api}Response");
        for name in [&request, &response] {
            if !messages.iter().any(|m| &m.name == name) {
                return Err(format!("{name} is missing").into());
            }
        }
        let _ = writeln!(out, "    {api}: {request}, {response};");
    }
    out.push_str("}\n");
    Ok(out)
}
