//! Rust source for message definitions: one module per message, one struct per struct, straight-line decode and encode.

use crate::definition::{Definition, Field, FieldType, Kind, Struct, Versions, snake_case};
use crate::tables;
use std::fmt::Write;

/// The whole of `messages.rs`.
pub(crate) fn generate(definitions: &[Definition]) -> String {
    let mut out = String::from("// Generated from messages/*.msg by build/main.rs.\n\n");
    for definition in definitions {
        generate_module(&mut out, definition);
    }
    for definition in definitions {
        writeln!(
            out,
            "pub use self::{}::{};",
            snake_case(&definition.name),
            definition.name
        )
        .unwrap();
    }
    tables::generate_api_keys(&mut out, definitions);
    tables::generate_metadata_records(&mut out, definitions);
    out
}

fn generate_module(out: &mut String, definition: &Definition) {
    let module = snake_case(&definition.name);
    writeln!(
        out,
        "/// `{}` and the structs within it.\npub mod {module} {{",
        definition.name
    )
    .unwrap();
    writeln!(
        out,
        "    #[allow(unused_imports)]\n    use super::prelude::*;\n"
    )
    .unwrap();
    for message_struct in &definition.structs {
        generate_struct(out, definition, message_struct);
    }
    let top = &definition.structs[0];
    let Versions { first, last } = definition.versions;
    let flexible = match definition.flexible {
        Some(flexible) => format!("Some({flexible})"),
        None => "None".to_string(),
    };
    match definition.kind {
        Kind::Request => {
            let response = definition.name.replace("Request", "Response");
            writeln!(
                out,
                "    impl Request for {} {{\n        const API_KEY: i16 = {};\n        const MIN_VERSION: i16 = {first};\n        \
                 const MAX_VERSION: i16 = {last};\n        type Response = super::{}::{response};\n    }}",
                top.name,
                definition.key.expect("a request has a key"),
                snake_case(&response),
            )
            .unwrap();
        }
        Kind::Response | Kind::Data => {
            writeln!(
                out,
                "    impl {} {{\n        /// The first version that is understood.\n        pub const MIN_VERSION: i16 = {first};\n        \
                 /// The last version that is understood.\n        pub const MAX_VERSION: i16 = {last};\n        \
                 /// The first version with compact lengths and tagged fields.\n        \
                 pub const FIRST_FLEXIBLE_VERSION: Option<i16> = {flexible};\n    }}",
                top.name
            )
            .unwrap();
        }
    }
    out.push_str("}\n\n");
}

fn generate_struct(out: &mut String, definition: &Definition, message_struct: &Struct) {
    let name = &message_struct.name;
    writeln!(
        out,
        "    /// {}",
        describe_struct(definition, message_struct)
    )
    .unwrap();
    writeln!(
        out,
        "    #[derive(Clone, Debug, PartialEq)]\n    pub struct {name} {{"
    )
    .unwrap();
    for field in &message_struct.fields {
        writeln!(out, "        /// {}", describe_field(field, message_struct)).unwrap();
        writeln!(out, "        pub {}: {},", field.name, rust_type(field)).unwrap();
    }
    writeln!(out, "    }}\n\n    impl Default for {name} {{\n        fn default() -> Self {{\n            Self {{").unwrap();
    for field in &message_struct.fields {
        writeln!(
            out,
            "                {}: {},",
            field.name,
            default_value(field)
        )
        .unwrap();
    }
    writeln!(out, "            }}\n        }}\n    }}\n").unwrap();
    writeln!(out, "    impl Message for {name} {{").unwrap();
    generate_decode(out, definition, message_struct);
    generate_encode(out, definition, message_struct);
    out.push_str("    }\n\n");
}

fn generate_decode(out: &mut String, definition: &Definition, message_struct: &Struct) {
    out.push_str(
        "        fn decode(r: &mut Reader<'_>, version: i16) -> Result<Self, DecodeError> {\n",
    );
    if std::ptr::eq(message_struct, &definition.structs[0]) {
        let Versions { first, last } = definition.versions;
        writeln!(
            out,
            "            if !({first}..={last}).contains(&version) {{\n                return Err(DecodeError::UnsupportedVersion {{ message: \"{}\", version }});\n            }}",
            definition.name
        )
        .unwrap();
    }
    generate_flexible(out, definition);
    out.push_str("            let mut message = Self::default();\n");
    let flexible = flexible_expression(definition);
    for field in message_struct
        .fields
        .iter()
        .filter(|field| field.tag.is_none())
    {
        let read = read_expression(definition, field, flexible);
        match condition(field.versions, message_struct.versions) {
            None => writeln!(out, "            message.{} = {read};", field.name),
            Some(present) => {
                writeln!(out, "            if {present} {{\n                message.{} = {read};\n            }}", field.name)
            }
        }
        .unwrap();
    }
    if definition.flexible.is_some() {
        writeln!(
            out,
            "            if {flexible} {{\n                r.tagged_fields(|r, tag| match tag {{"
        )
        .unwrap();
        for field in &message_struct.fields {
            let Some(tag) = field.tag else { continue };
            let guard = condition(field.versions, message_struct.versions);
            let guard = guard
                .map(|present| format!(" if {present}"))
                .unwrap_or_default();
            let read = read_expression(definition, field, flexible);
            writeln!(out, "                    {tag}{guard} => {{\n                        message.{} = {read};\n                        Ok(true)\n                    }}", field.name).unwrap();
        }
        out.push_str("                    _ => Ok(false),\n                })?;\n            }\n");
    }
    out.push_str("            Ok(message)\n        }\n\n");
}

fn generate_encode(out: &mut String, definition: &Definition, message_struct: &Struct) {
    out.push_str(
        "        fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {\n",
    );
    if std::ptr::eq(message_struct, &definition.structs[0]) {
        let Versions { first, last } = definition.versions;
        writeln!(
            out,
            "            if !({first}..={last}).contains(&version) {{\n                return Err(EncodeError::UnsupportedVersion {{ message: \"{}\", version }});\n            }}",
            definition.name
        )
        .unwrap();
    }
    generate_flexible(out, definition);
    let flexible = flexible_expression(definition);
    for field in &message_struct.fields {
        let path = format!("{}.{}", message_struct.name, field.name);
        let present = condition(field.versions, message_struct.versions);
        let refuse =
            format!("return Err(EncodeError::FieldNotInVersion {{ field: \"{path}\", version }});");
        if field.tag.is_some() {
            if let Some(present) = present.filter(|_| !field.ignorable) {
                writeln!(
                    out,
                    "            if !({present}) && {} {{\n                {refuse}\n            }}",
                    is_not_default(field)
                )
                .unwrap();
            }
            continue;
        }
        let indent = if present.is_some() {
            "                "
        } else {
            "            "
        };
        let write = write_field(field, &path, flexible, indent);
        match present {
            None => out.push_str(&write),
            Some(present) if field.ignorable => {
                write!(out, "            if {present} {{\n{write}            }}\n").unwrap();
            }
            Some(present) => {
                write!(
                    out,
                    "            if {present} {{\n{write}            }} else if {} {{\n                {refuse}\n            }}\n",
                    is_not_default(field)
                )
                .unwrap();
            }
        }
    }
    if definition.flexible.is_some() {
        generate_encode_tags(out, message_struct, flexible);
    }
    out.push_str("            Ok(())\n        }\n");
}

fn generate_encode_tags(out: &mut String, message_struct: &Struct, flexible: &str) {
    let mut tagged: Vec<&Field> = message_struct
        .fields
        .iter()
        .filter(|field| field.tag.is_some())
        .collect();
    tagged.sort_by_key(|field| field.tag);
    if tagged.is_empty() {
        writeln!(
            out,
            "            if {flexible} {{\n                w.uvarint(0);\n            }}"
        )
        .unwrap();
        return;
    }
    let is_set = |field: &Field| match condition(field.versions, message_struct.versions) {
        Some(present) => format!("({present}) && {}", is_not_default(field)),
        None => is_not_default(field),
    };
    writeln!(
        out,
        "            if {flexible} {{\n                let mut count = 0;"
    )
    .unwrap();
    for field in &tagged {
        writeln!(
            out,
            "                if {} {{\n                    count += 1;\n                }}",
            is_set(field)
        )
        .unwrap();
    }
    writeln!(out, "                w.uvarint(count);").unwrap();
    for field in &tagged {
        let path = format!("{}.{}", message_struct.name, field.name);
        let write = write_field(field, &path, flexible, "                        ");
        let tag = field.tag.unwrap_or_default();
        writeln!(
            out,
            "                if {} {{\n                    w.tagged_field({tag}, |w| {{\n{write}                        Ok(())\n                    }})?;\n                }}",
            is_set(field)
        )
        .unwrap();
    }
    out.push_str("            }\n");
}

fn generate_flexible(out: &mut String, definition: &Definition) {
    if flexible_expression(definition) == "flexible" {
        let first = definition.flexible.unwrap_or_default();
        writeln!(out, "            let flexible = version >= {first};").unwrap();
    }
}

/// Whether a version is flexible, as an expression in the generated functions.
fn flexible_expression(definition: &Definition) -> &'static str {
    match definition.flexible {
        None => "false",
        Some(first) if first <= definition.versions.first => "true",
        Some(_) => "flexible",
    }
}

/// The test that a version of `outer` is one of `inner`; none where all are.
fn condition(inner: Versions, outer: Versions) -> Option<String> {
    match (inner.first > outer.first, inner.last < outer.last) {
        (false, false) => None,
        (true, false) => Some(format!("version >= {}", inner.first)),
        (false, true) => Some(format!("version <= {}", inner.last)),
        (true, true) if inner.first == inner.last => Some(format!("version == {}", inner.first)),
        (true, true) => Some(format!(
            "({}..={}).contains(&version)",
            inner.first, inner.last
        )),
    }
}

fn read_expression(definition: &Definition, field: &Field, flexible: &str) -> String {
    let Some(nullable) = field.nullable else {
        return format!(
            "{}?",
            read_call(definition, &field.field_type, flexible, "")
        );
    };
    let read = format!(
        "{}?",
        read_call(definition, &field.field_type, flexible, "nullable_")
    );
    match condition(nullable, field.versions).filter(|_| field.field_type != FieldType::Records) {
        None => read,
        Some(allowed) => {
            let strict = read_call(definition, &field.field_type, flexible, "");
            format!("if {allowed} {{ {read} }} else {{ Some({strict}?) }}")
        }
    }
}

fn read_call(
    definition: &Definition,
    field_type: &FieldType,
    flexible: &str,
    nullable: &str,
) -> String {
    match field_type {
        FieldType::Bool => "r.bool()".to_string(),
        FieldType::I8 => "r.i8()".to_string(),
        FieldType::I16 => "r.i16()".to_string(),
        FieldType::U16 => "r.u16()".to_string(),
        FieldType::I32 => "r.i32()".to_string(),
        FieldType::I64 => "r.i64()".to_string(),
        FieldType::F64 => "r.f64()".to_string(),
        FieldType::Uuid => "r.uuid()".to_string(),
        FieldType::String => format!("r.{nullable}string({flexible})"),
        FieldType::Bytes => format!("r.{nullable}bytes({flexible})"),
        FieldType::Records => format!("r.{nullable}records({flexible})"),
        FieldType::Struct(name) if nullable.is_empty() => format!("{name}::decode(r, version)"),
        FieldType::Struct(name) => format!("r.nullable_struct(|r| {name}::decode(r, version))"),
        FieldType::Array(element) => format!(
            "r.{nullable}array({flexible}, {}, |r| {})",
            minimal_size(definition, element),
            read_call(definition, element, flexible, "")
        ),
    }
}

/// The fewest bytes that a value takes in any version: bounds how many elements the rest of a frame may hold.
fn minimal_size(definition: &Definition, field_type: &FieldType) -> usize {
    match field_type {
        FieldType::Bool | FieldType::I8 => 1,
        FieldType::I16 | FieldType::U16 => 2,
        FieldType::I32 => 4,
        FieldType::I64 | FieldType::F64 => 8,
        FieldType::Uuid => 16,
        FieldType::String | FieldType::Bytes | FieldType::Records | FieldType::Array(_) => 1,
        FieldType::Struct(name) => {
            let element = definition.find_struct(name);
            let size_in = |version: i16| -> usize {
                let carried =
                    |field: &&Field| field.versions.contains(version) && field.tag.is_none();
                element
                    .fields
                    .iter()
                    .filter(carried)
                    .map(|field| match field.nullable {
                        Some(_) => 1,
                        None => minimal_size(definition, &field.field_type),
                    })
                    .sum::<usize>()
                    + usize::from(definition.is_flexible(version))
            };
            let Versions { first, last } = element.versions;
            (first..=last).map(size_in).min().unwrap_or_default().max(1)
        }
    }
}

fn write_field(field: &Field, path: &str, flexible: &str, indent: &str) -> String {
    let value = format!("self.{}", field.name);
    if field.field_type == FieldType::Records {
        return format!("{indent}w.records(&{value}, {flexible})?;\n");
    }
    let Some(nullable) = field.nullable else {
        return write_value(&field.field_type, &value, flexible, indent);
    };
    let null = match &field.field_type {
        FieldType::Struct(_) => "w.i8(-1)".to_string(),
        FieldType::String => format!("w.null_string({flexible})"),
        FieldType::Bytes | FieldType::Array(_) => format!("w.null_array({flexible})"),
        other => panic!("{path}: {other:?} cannot be null"),
    };
    let null = match condition(nullable, field.versions) {
        None => format!("{indent}    None => {null},\n"),
        Some(allowed) => format!(
            "{indent}    None if {allowed} => {null},\n{indent}    None => return Err(EncodeError::NullNotAllowed {{ field: \"{path}\", version }}),\n"
        ),
    };
    let mark = match &field.field_type {
        FieldType::Struct(_) => format!("{indent}        w.i8(1);\n"),
        _ => String::new(),
    };
    let write = write_value(
        &field.field_type,
        "value",
        flexible,
        &format!("{indent}        "),
    );
    format!(
        "{indent}match &{value} {{\n{null}{indent}    Some(value) => {{\n{mark}{write}{indent}    }}\n{indent}}}\n"
    )
}

fn write_value(field_type: &FieldType, value: &str, flexible: &str, indent: &str) -> String {
    let borrowed = if value.contains('.') {
        format!("&{value}")
    } else {
        value.to_string()
    };
    let copied = if value.contains('.') {
        value.to_string()
    } else {
        format!("*{value}")
    };
    match field_type {
        FieldType::Bool => format!("{indent}w.bool({copied});\n"),
        FieldType::I8 => format!("{indent}w.i8({copied});\n"),
        FieldType::I16 => format!("{indent}w.i16({copied});\n"),
        FieldType::U16 => format!("{indent}w.u16({copied});\n"),
        FieldType::I32 => format!("{indent}w.i32({copied});\n"),
        FieldType::I64 => format!("{indent}w.i64({copied});\n"),
        FieldType::F64 => format!("{indent}w.f64({copied});\n"),
        FieldType::Uuid => format!("{indent}w.uuid({borrowed});\n"),
        FieldType::String => format!("{indent}w.string({borrowed}, {flexible})?;\n"),
        FieldType::Bytes => format!("{indent}w.bytes({borrowed}, {flexible})?;\n"),
        FieldType::Records => format!("{indent}w.records({borrowed}, {flexible})?;\n"),
        FieldType::Struct(_) => format!("{indent}{value}.encode(w, version)?;\n"),
        FieldType::Array(element) => {
            let item = write_value(element, "item", flexible, &format!("{indent}    "));
            format!(
                "{indent}w.array_length({value}.len(), {flexible})?;\n{indent}for item in {borrowed} {{\n{item}{indent}}}\n"
            )
        }
    }
}

fn rust_type(field: &Field) -> String {
    let plain = plain_type(&field.field_type);
    match field.nullable {
        Some(_) if field.field_type != FieldType::Records => format!("Option<{plain}>"),
        _ => plain,
    }
}

fn plain_type(field_type: &FieldType) -> String {
    match field_type {
        FieldType::Bool => "bool".to_string(),
        FieldType::I8 => "i8".to_string(),
        FieldType::I16 => "i16".to_string(),
        FieldType::U16 => "u16".to_string(),
        FieldType::I32 => "i32".to_string(),
        FieldType::I64 => "i64".to_string(),
        FieldType::F64 => "f64".to_string(),
        FieldType::String => "String".to_string(),
        FieldType::Bytes => "Vec<u8>".to_string(),
        FieldType::Uuid => "Uuid".to_string(),
        FieldType::Records => "Records".to_string(),
        FieldType::Struct(name) => name.clone(),
        FieldType::Array(element) => format!("Vec<{}>", plain_type(element)),
    }
}

fn default_value(field: &Field) -> String {
    let has_null_type = field.nullable.is_some() && field.field_type != FieldType::Records;
    match (&field.default, &field.field_type) {
        (Some(default), _) if default == "null" => "None".to_string(),
        (Some(default), FieldType::String) if has_null_type => {
            format!("Some({default:?}.to_string())")
        }
        (Some(default), FieldType::String) => format!("{default:?}.to_string()"),
        (Some(default), _) => default.clone(),
        (None, FieldType::Struct(_)) if has_null_type => "None".to_string(),
        (None, _) if has_null_type => "Some(Default::default())".to_string(),
        (None, _) => "Default::default()".to_string(),
    }
}

/// The test whether a value is other than its default, and so may not be dropped in silence.
fn is_not_default(field: &Field) -> String {
    let value = format!("self.{}", field.name);
    let has_null_type = field.nullable.is_some() && field.field_type != FieldType::Records;
    let is_null_by_default = field.default.as_deref() == Some("null")
        || matches!(field.field_type, FieldType::Struct(_));
    match (&field.field_type, &field.default) {
        _ if has_null_type && is_null_by_default => format!("{value}.is_some()"),
        (FieldType::String, Some(default)) if has_null_type => {
            format!("{value}.as_deref() != Some({default:?})")
        }
        (FieldType::String, Some(default)) => format!("{value} != {default:?}"),
        (FieldType::Bool, Some(default)) if default == "true" => format!("!{value}"),
        (FieldType::Bool, _) => value,
        (FieldType::String | FieldType::Bytes | FieldType::Array(_), None) if has_null_type => {
            format!("!{value}.as_ref().is_some_and(|value| value.is_empty())")
        }
        (FieldType::String | FieldType::Bytes | FieldType::Array(_), _) => {
            format!("!{value}.is_empty()")
        }
        (FieldType::Struct(name), _) => format!("{value} != {name}::default()"),
        (FieldType::Uuid, _) => format!("{value} != Uuid::ZERO"),
        (FieldType::Records, _) => format!("{value} != Records::default()"),
        (_, Some(default)) => format!("{value} != {default}"),
        (FieldType::F64, None) => format!("{value} != 0.0"),
        (_, None) => format!("{value} != 0"),
    }
}

fn describe_struct(definition: &Definition, message_struct: &Struct) -> String {
    let versions = describe_versions(message_struct.versions);
    let flexible = match definition.flexible {
        None => "never flexible".to_string(),
        Some(first) => format!("flexible from {first}"),
    };
    if std::ptr::eq(message_struct, &definition.structs[0]) {
        format!("Versions {versions}, {flexible}.")
    } else {
        format!("Part of `{}`, versions {versions}.", definition.name)
    }
}

fn describe_field(field: &Field, message_struct: &Struct) -> String {
    let mut text = match condition(field.versions, message_struct.versions) {
        None => "All versions".to_string(),
        Some(_) => format!("Versions {}", describe_versions(field.versions)),
    };
    if let Some(tag) = field.tag {
        write!(text, ", tag {tag}").unwrap();
    }
    if let Some(nullable) = field.nullable {
        match condition(nullable, field.versions) {
            None => text.push_str(", may be null"),
            Some(_) => write!(text, ", null in {}", describe_versions(nullable)).unwrap(),
        }
    }
    if let Some(default) = &field.default {
        write!(text, ", default {default}").unwrap();
    }
    if !field.ignorable && condition(field.versions, message_struct.versions).is_some() {
        text.push_str("; refused in other versions unless default");
    }
    text + "."
}

pub(crate) fn describe_versions(Versions { first, last }: Versions) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}
