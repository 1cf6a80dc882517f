//! Rust source of what lists all messages: the API keys, and the enum of metadata records.

use crate::definition::{Definition, Kind, Versions};
use crate::generate::describe_versions;
use std::fmt::Write;

/// `ApiKey`, the table behind it, and `for_each_api!`.
pub(crate) fn generate_api_keys(out: &mut String, definitions: &[Definition]) {
    let mut requests: Vec<&Definition> = definitions
        .iter()
        .filter(|definition| definition.kind == Kind::Request)
        .collect();
    requests.sort_by_key(|definition| definition.key);
    for request in &requests {
        let response_name = request.name.replace("Request", "Response");
        let response = definitions
            .iter()
            .find(|definition| definition.name == response_name);
        let response = response.unwrap_or_else(|| panic!("{}: no {response_name}", request.name));
        assert_eq!(
            (request.key, request.versions, request.flexible),
            (response.key, response.versions, response.flexible),
            "{}: request and response differ",
            request.name
        );
    }
    let name = |request: &Definition| request.name.replace("Request", "");
    out.push_str(
        "\n/// The APIs that this crate has messages for; the value is the number on the wire.\n",
    );
    out.push_str("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]\n#[repr(i16)]\npub enum ApiKey {\n");
    for request in &requests {
        let key = request.key.expect("a request has a key");
        writeln!(
            out,
            "    /// Versions {}.\n    {} = {key},",
            describe_versions(request.versions),
            name(request)
        )
        .unwrap();
    }
    out.push_str("}\n\n/// (api, first version, last version, first flexible version, i16::MAX where there is none), by key.\n");
    out.push_str("pub(crate) const APIS: &[(ApiKey, i16, i16, i16)] = &[\n");
    for request in &requests {
        let Versions { first, last } = request.versions;
        let flexible = request.flexible.unwrap_or(i16::MAX);
        writeln!(
            out,
            "    (ApiKey::{}, {first}, {last}, {flexible}),",
            name(request)
        )
        .unwrap();
    }
    out.push_str("];\n\nimpl ApiKey {\n    /// The name that Kafka gives the API.\n    pub fn name(self) -> &'static str {\n        match self {\n");
    for request in &requests {
        writeln!(out, "            Self::{0} => \"{0}\",", name(request)).unwrap();
    }
    out.push_str("        }\n    }\n}\n\nimpl TryFrom<i16> for ApiKey {\n    type Error = i16;\n\n    fn try_from(key: i16) -> Result<Self, i16> {\n        match key {\n");
    for request in &requests {
        writeln!(
            out,
            "            {} => Ok(Self::{}),",
            request.key.unwrap_or_default(),
            name(request)
        )
        .unwrap();
    }
    out.push_str("            unknown => Err(unknown),\n        }\n    }\n}\n\n");
    out.push_str("/// Calls `$each!(Name, NameRequest, NameResponse)` for every API, by key.\n#[macro_export]\nmacro_rules! for_each_api {\n    ($each:ident) => {\n");
    for request in &requests {
        let name = name(request);
        writeln!(
            out,
            "        $each!({name}, {name}Request, {name}Response);"
        )
        .unwrap();
    }
    out.push_str("    };\n}\n");
}

/// `MetadataRecord`: the data definitions that have a key are the records of the metadata log.
pub(crate) fn generate_metadata_records(out: &mut String, definitions: &[Definition]) {
    let records: Vec<(&Definition, i16)> = definitions
        .iter()
        .filter(|definition| definition.kind == Kind::Data)
        .filter_map(|definition| Some((definition, definition.key?)))
        .collect();
    let variant = |record: &Definition| record.name.replace("Record", "");
    out.push_str("\n/// A record of the metadata log.\n#[derive(Clone, Debug, PartialEq)]\npub enum MetadataRecord {\n");
    for (record, key) in &records {
        writeln!(
            out,
            "    /// Type {key}.\n    {}({}),",
            variant(record),
            record.name
        )
        .unwrap();
    }
    out.push_str("}\n\nimpl MetadataRecord {\n    /// The number of the record's type on disk.\n    pub(crate) fn record_type(&self) -> u32 {\n        match self {\n");
    for (record, key) in &records {
        writeln!(out, "            Self::{}(_) => {key},", variant(record)).unwrap();
    }
    out.push_str("        }\n    }\n\n    /// The version that is written.\n    pub(crate) fn version(&self) -> i16 {\n        match self {\n");
    for (record, _) in &records {
        writeln!(
            out,
            "            Self::{}(_) => {}::MAX_VERSION,",
            variant(record),
            record.name
        )
        .unwrap();
    }
    out.push_str("        }\n    }\n\n    pub(crate) fn encode_body(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {\n        match self {\n");
    for (record, _) in &records {
        writeln!(
            out,
            "            Self::{}(record) => record.encode(w, version),",
            variant(record)
        )
        .unwrap();
    }
    out.push_str("        }\n    }\n\n    pub(crate) fn decode_body(r: &mut Reader<'_>, record_type: u32, version: i16) -> Result<Self, DecodeError> {\n        match record_type {\n");
    for (record, key) in &records {
        writeln!(
            out,
            "            {key} => {}::decode(r, version).map(Self::{}),",
            record.name,
            variant(record)
        )
        .unwrap();
    }
    out.push_str(
        "            unknown => Err(DecodeError::UnknownType(unknown)),\n        }\n    }\n}\n",
    );
}
