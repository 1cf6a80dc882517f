//! Reads a properties file as Java does: `#` and `!` comments, `=`, `:` or blanks after the name, backslash escapes
//! and continued lines. Unlike Java it refuses a name that is set twice, because one of both was not meant.

use std::collections::BTreeMap;

use taffrail_core::config::ConfigMap;
use thiserror::Error;

/// Why a file could not be read.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum PropertiesError {
    /// A name stands twice.
    #[error("{name}: set twice, on lines {first} and {second}")]
    SetTwice {
        /// The name.
        name: String,
        /// Line of its first value, from 1.
        first: usize,
        /// Line of its second value.
        second: usize,
    },
    /// A `\u` without four hexadecimal digits that make a character.
    #[error("line {line}: \\u must be followed by four hexadecimal digits of a character")]
    Escape {
        /// The line, from 1.
        line: usize,
    },
}

/// The names and values of a file's text.
pub(crate) fn parse(text: &str) -> Result<ConfigMap, PropertiesError> {
    let mut map = ConfigMap::new();
    let mut lines_by_name: BTreeMap<String, usize> = BTreeMap::new();
    for (line, logical) in logical_lines(text) {
        let (name, value) = split(&logical);
        let name = unescape(name).ok_or(PropertiesError::Escape { line })?;
        let value = unescape(value).ok_or(PropertiesError::Escape { line })?;
        if let Some(first) = lines_by_name.insert(name.clone(), line) {
            return Err(PropertiesError::SetTwice {
                name,
                first,
                second: line,
            });
        }
        map.insert(name, value.trim_end().to_string());
    }
    Ok(map)
}

/// Lines that are neither blank nor comments, each joined with the lines that continue it, and where it starts.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let (start, mut joined) = match open.take() {
            Some(open) => open,
            None if line.is_empty() || line.starts_with(['#', '!']) => continue,
            None => (number + 1, String::new()),
        };
        let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
        if backslashes % 2 == 1 {
            joined.push_str(&line[..line.len() - 1]);
            open = Some((start, joined));
        } else {
            joined.push_str(line);
            found.push((start, joined));
        }
    }
    found.extend(open);
    found
}

/// The name ends at the first unescaped `=`, `:` or blank; one separator and the blanks around it are dropped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .char_indices()
        .find(|(_, letter)| {
            let ends = !escaped && (matches!(letter, '=' | ':') || letter.is_whitespace());
            escaped = !escaped && *letter == '\\';
            ends
        })
        .map_or(line.len(), |(position, _)| position);
    let rest = line[end..].trim_start();
    (
        &line[..end],
        rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start(),
    )
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('f') => plain.push('\u{c}'),
            Some('u') => {
                let digits: String = letters.by_ref().take(4).collect();
                let code = (digits.len() == 4).then(|| u32::from_str_radix(&digits, 16).ok())??;
                plain.push(char::from_u32(code)?);
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: ConfigMap = expected
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        assert_eq!(parse(text), Ok(expected), "{text:?}");
    }

    #[test]
    fn reads_what_java_reads() {
        check("", &[]);
        check("# a\n  ! b\n\n", &[]);
        check("node.id=1", &[("node.id", "1")]);
        check("node.id = 1  \r\n", &[("node.id", "1")]);
        check(
            "node.id: 1\nlog.dirs /a,/b",
            &[("node.id", "1"), ("log.dirs", "/a,/b")],
        );
        check(
            "listeners=A://:1,\\\n    B://:2",
            &[("listeners", "A://:1,B://:2")],
        );
        check("a=1\\\\\nb=2", &[("a", "1\\"), ("b", "2")]);
        check("a\\:b\\ c=d=e", &[("a:b c", "d=e")]);
        check("a=\\u00e9\\t", &[("a", "é")]);
        check("a", &[("a", "")]);
        check("a=1\\", &[("a", "1")]);
    }

    #[test]
    fn refuses_what_was_not_meant() {
        let twice = PropertiesError::SetTwice {
            name: "a".into(),
            first: 1,
            second: 3,
        };
        assert_eq!(parse("a=1\n\na=2"), Err(twice));
        assert_eq!(
            parse("b=1\na=\\u12"),
            Err(PropertiesError::Escape { line: 2 })
        );
        assert_eq!(parse("a=\\ud800"), Err(PropertiesError::Escape { line: 1 }));
    }

    /// Every text of up to five of the letters that mean something.
    #[test]
    fn no_text_makes_it_panic() {
        let letters = ['a', 'u', '0', '=', ':', ' ', '\\', '#', '\n', 'é'];
        let mut texts = vec![String::new()];
        for _ in 0..5 {
            let longer = texts
                .iter()
                .flat_map(|text| letters.map(|letter| format!("{text}{letter}")));
            texts = longer.collect();
            for text in &texts {
                let _ = parse(text);
            }
        }
    }
}
