//! The text form of message definitions (`messages/*.msg`, described in README.md) and its parser.
//! Also read by the tests, which make wire bytes from it without going through the generated code.

/// An inclusive range of message versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    pub(crate) fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    /// Bytes that are no request: consumer protocol, records of internal topics.
    Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Bool,
    I8,
    I16,
    U16,
    I32,
    I64,
    F64,
    String,
    Bytes,
    Uuid,
    Records,
    Struct(String),
    Array(Box<FieldType>),
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) field_type: FieldType,
    /// Versions that carry the field, within those of its struct.
    pub(crate) versions: Versions,
    /// Versions in which null is allowed.
    pub(crate) nullable: Option<Versions>,
    pub(crate) tag: Option<u32>,
    pub(crate) default: Option<String>,
    /// Whether a value may be dropped in silence in versions that do not carry the field.
    pub(crate) ignorable: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) versions: Versions,
    pub(crate) fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) key: Option<i16>,
    pub(crate) versions: Versions,
    /// First version with compact lengths and tagged fields.
    pub(crate) flexible: Option<i16>,
    /// The message itself first, then the structs within it.
    pub(crate) structs: Vec<Struct>,
}

impl Definition {
    pub(crate) fn find_struct(&self, name: &str) -> &Struct {
        self.structs
            .iter()
            .find(|candidate| candidate.name == name)
            .unwrap_or_else(|| panic!("{}: no struct {name}", self.name))
    }

    pub(crate) fn is_flexible(&self, version: i16) -> bool {
        self.flexible.is_some_and(|first| version >= first)
    }
}

/// The line that is being read, for messages.
struct Place<'a> {
    file: &'a str,
    number: usize,
    line: &'a str,
}

impl Place<'_> {
    fn fail(&self, what: &str) -> ! {
        panic!("{}:{}: {what}: {}", self.file, self.number, self.line)
    }
}

/// Parses one file; panics with the file's name and line, for only a build or a test reads it.
pub(crate) fn parse(file: &str, text: &str) -> Vec<Definition> {
    let mut definitions: Vec<Definition> = Vec::new();
    // The structs that enclose the current line: (indent of their fields, index into structs).
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = Place {
            file,
            number: number + 1,
            line,
        };
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = content.split(' ').collect();
        if indent == 0 {
            definitions.push(parse_head(&words, &place));
            open = vec![(2, 0)];
            continue;
        }
        let Some(definition) = definitions.last_mut() else {
            place.fail("a field before any message")
        };
        while open
            .last()
            .is_some_and(|(fields_indent, _)| *fields_indent > indent)
        {
            open.pop();
        }
        let Some(&(fields_indent, parent)) = open.last() else {
            place.fail("bad indent")
        };
        if fields_indent != indent {
            place.fail("bad indent");
        }
        if words[0] == "struct" {
            let versions = match words.get(2) {
                Some(range) => parse_versions(range, definition.versions, &place),
                None => definition.versions,
            };
            definition.structs.push(Struct {
                name: words[1].to_string(),
                versions,
                fields: Vec::new(),
            });
            open.push((indent + 2, definition.structs.len() - 1));
            continue;
        }
        let parent_versions = definition.structs[parent].versions;
        let field = parse_field(&words, parent_versions, definition.versions.last, &place);
        if let Some(name) = struct_name(&field.field_type) {
            let name = name.to_string();
            // Children that follow open a new struct; without children it refers to one that `struct` declares.
            let has_children = text
                .lines()
                .skip(number + 1)
                .find(|next| !next.trim().is_empty() && !next.trim().starts_with('#'))
                .is_some_and(|next| next.len() - next.trim_start().len() > indent);
            if has_children {
                definition.structs.push(Struct {
                    name,
                    versions: field.versions,
                    fields: Vec::new(),
                });
                open.push((indent + 2, definition.structs.len() - 1));
            }
        }
        definition.structs[parent].fields.push(field);
    }
    definitions
}

/// The struct that a type names, if any.
pub(crate) fn struct_name(field_type: &FieldType) -> Option<&str> {
    match field_type {
        FieldType::Struct(name) => Some(name),
        FieldType::Array(element) => struct_name(element),
        _ => None,
    }
}

fn parse_head(words: &[&str], place: &Place<'_>) -> Definition {
    let kind = match words[0] {
        "request" => Kind::Request,
        "response" => Kind::Response,
        "data" => Kind::Data,
        _ => place.fail("expected request, response or data"),
    };
    let all = Versions {
        first: 0,
        last: i16::MAX,
    };
    let (mut key, mut versions, mut flexible) = (None, None, None);
    for word in &words[2..] {
        match word.split_once('=') {
            Some(("key", value)) => key = value.parse().ok(),
            Some(("versions", value)) => versions = Some(parse_versions(value, all, place)),
            Some(("flexible", "none")) => {}
            Some(("flexible", value)) => flexible = Some(parse_versions(value, all, place).first),
            _ => place.fail("unknown word"),
        }
    }
    let Some(versions) = versions else {
        place.fail("no versions")
    };
    let name = words[1].to_string();
    let structs = vec![Struct {
        name: name.clone(),
        versions,
        fields: Vec::new(),
    }];
    Definition {
        kind,
        name,
        key,
        versions,
        flexible,
        structs,
    }
}

fn parse_field(words: &[&str], parent: Versions, last: i16, place: &Place<'_>) -> Field {
    if words.len() < 2 {
        place.fail("expected a name and a type");
    }
    let mut field = Field {
        name: words[0].to_string(),
        field_type: parse_type(words[1], place),
        versions: parent,
        nullable: None,
        tag: None,
        default: None,
        ignorable: false,
    };
    let mut nullable = None;
    for word in &words[2..] {
        match word.split_once('=') {
            None if *word == "null" => nullable = Some(None),
            None if *word == "ignorable" => field.ignorable = true,
            None => {
                field.versions = parse_versions(
                    word,
                    Versions {
                        first: parent.first,
                        last,
                    },
                    place,
                )
            }
            Some(("null", range)) => nullable = Some(Some(range)),
            Some(("tag", value)) => {
                field.tag = Some(value.parse().unwrap_or_else(|_| place.fail("bad tag")))
            }
            Some(("default", value)) => field.default = Some(value.to_string()),
            Some(_) => place.fail("unknown word"),
        }
    }
    field.versions.last = field.versions.last.min(parent.last);
    field.nullable = nullable.map(|range| match range {
        Some(range) => parse_versions(range, field.versions, place),
        None => field.versions,
    });
    field
}

fn parse_type(word: &str, place: &Place<'_>) -> FieldType {
    if let Some(element) = word
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return FieldType::Array(Box::new(parse_type(element, place)));
    }
    match word {
        "bool" => FieldType::Bool,
        "i8" => FieldType::I8,
        "i16" => FieldType::I16,
        "u16" => FieldType::U16,
        "i32" => FieldType::I32,
        "i64" => FieldType::I64,
        "f64" => FieldType::F64,
        "string" => FieldType::String,
        "bytes" => FieldType::Bytes,
        "uuid" => FieldType::Uuid,
        "records" => FieldType::Records,
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
            FieldType::Struct(name.to_string())
        }
        _ => place.fail("unknown type"),
    }
}

/// `3`, `3-5` or `3+`, the last up to the end of `within`.
fn parse_versions(word: &str, within: Versions, place: &Place<'_>) -> Versions {
    let number = |text: &str| {
        text.parse::<i16>()
            .unwrap_or_else(|_| place.fail("bad versions"))
    };
    let versions = if let Some(first) = word.strip_suffix('+') {
        Versions {
            first: number(first),
            last: within.last,
        }
    } else if let Some((first, last)) = word.split_once('-') {
        Versions {
            first: number(first),
            last: number(last),
        }
    } else {
        Versions {
            first: number(word),
            last: number(word),
        }
    };
    if versions.first > versions.last
        || versions.first < within.first
        || versions.last > within.last
    {
        place.fail("versions outside of those of what holds it");
    }
    versions
}

/// `ProduceRequest` as `produce_request`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (position, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && position > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
