//! Every manifest in `manifests/valid` is admitted; every one in `manifests/invalid` is refused with the errors that
//! its `# expect:` lines begin. A file of two documents is an object and its update.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use taffrail_crds::admission::admit;
use taffrail_crds::definitions::definitions;

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/manifests")
        .join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("folder of manifests")
        .map(|entry| entry.expect("entry").path())
        .map(|path| (path.clone(), fs::read_to_string(path).expect("readable")))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Admits the documents one after the other, each as an update of the one before; returns the last one's errors.
fn errors(path: &Path, text: &str) -> Vec<String> {
    let documents: Vec<Value> = serde_yaml::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("YAML"))
        .collect();
    let (last, before) = documents.split_last().expect("a document");
    for document in before {
        let first = admit(document, None);
        assert!(first.is_ok(), "{}: {first:?}", path.display());
    }
    match admit(last, before.last()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn valid_manifests_are_admitted() {
    for (path, text) in files("valid") {
        assert_eq!(
            errors(&path, &text),
            Vec::<String>::new(),
            "{}",
            path.display()
        );
    }
}

#[test]
fn invalid_manifests_are_refused_by_field() {
    for (path, text) in files("invalid") {
        let mut expected: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# expect: "))
            .collect();
        let mut got = errors(&path, &text);
        expected.sort_unstable();
        got.sort_unstable();
        let as_expected = !expected.is_empty()
            && got.len() == expected.len()
            && got
                .iter()
                .zip(&expected)
                .all(|(got, expected)| got.starts_with(expected));
        assert!(
            as_expected,
            "{}\nexpected {expected:#?}\ngot {got:#?}",
            path.display()
        );
    }
}

#[test]
fn examples_are_admitted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    for entry in fs::read_dir(folder).expect("examples") {
        let path = entry.expect("entry").path();
        let text = fs::read_to_string(&path).expect("readable");
        for document in serde_yaml::Deserializer::from_str(&text) {
            let value = Value::deserialize(document).expect("YAML");
            let result = admit(&value, None);
            assert!(result.is_ok(), "{}: {result:?}", path.display());
        }
    }
}

#[test]
fn generated_files_are_current() {
    for definition in definitions() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(definition.file);
        let current = fs::read_to_string(&path).expect("generated file");
        assert!(
            current == definition.yaml().expect("YAML"),
            "{} is not what the types say; run `make crds`",
            path.display()
        );
    }
}

#[test]
fn schemas_keep_to_what_the_structural_walk_knows() {
    const KEYWORDS: &[&str] = &[
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
        "x-kubernetes-map-type",
    ];
    fn walk(path: &str, schema: &Value) {
        for (keyword, value) in schema.as_object().expect("schema") {
            assert!(KEYWORDS.contains(&keyword.as_str()), "{path}: {keyword}");
            match keyword.as_str() {
                "properties" => {
                    for (name, property) in value.as_object().expect("properties") {
                        walk(&format!("{path}.{name}"), property);
                    }
                }
                "items" | "additionalProperties" => walk(&format!("{path}[]"), value),
                "pattern" => {
                    regex::Regex::new(value.as_str().expect("text")).expect("pattern compiles");
                }
                _ => {}
            }
        }
    }
    for definition in definitions() {
        walk(
            definition.file,
            &definition.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        );
    }
}

#[test]
fn kubectl_lists_and_scales_by_fields_that_exist() {
    /// Whether a path such as `.status.conditions[?(@.type=="Ready")].status` leads to something in a schema.
    fn exists(schema: &Value, path: &str) -> bool {
        let mut at = schema;
        for step in path.trim_start_matches('.').split('.') {
            // The filter's own dot: `[?(@` and `type=="Ready")]` are of the step before.
            let (name, is_list) = match (step.split_once("[?"), step.strip_suffix(")]")) {
                (Some((name, _)), _) => (name, true),
                (None, Some(_)) => continue,
                (None, None) => (step, false),
            };
            at = &at["properties"][name];
            if is_list {
                at = &at["items"];
            }
        }
        at.is_object()
    }
    let check = |definition: usize, short: &str, columns: &[&str], scaled: Option<&str>| {
        let definition = &definitions()[definition];
        let (names, version) = (
            &definition.value["spec"]["names"],
            &definition.value["spec"]["versions"][0],
        );
        let schema = &version["schema"]["openAPIV3Schema"];
        assert_eq!(names["shortNames"], serde_json::json!([short]));
        assert_eq!(names["categories"], serde_json::json!(["taffrail"]));
        let shown = version["additionalPrinterColumns"].as_array();
        let shown = shown.expect("columns").iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let shown: Vec<(String, String)> = shown
            .map(|column| (text(&column["name"]), text(&column["jsonPath"])))
            .collect();
        let shown_names: Vec<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(shown_names, columns);
        let scale = &version["subresources"]["scale"];
        assert_eq!(scale["specReplicasPath"].as_str(), scaled);
        let of_scale = [
            "specReplicasPath",
            "statusReplicasPath",
            "labelSelectorPath",
        ];
        let of_scale = of_scale.iter().filter_map(|path| scale[path].as_str());
        let of_columns = shown.iter().map(|(_, path)| path.as_str());
        for path in of_columns.chain(of_scale) {
            // Schemas do not describe metadata.
            assert!(
                path == ".metadata.creationTimestamp" || exists(schema, path),
                "{} has no {path}",
                definition.file
            );
        }
    };
    let of_clusters = [
        "Ready",
        "Brokers",
        "Ready-Brokers",
        "Reason",
        "Controller",
        "Under-Replicated",
        "Age",
    ];
    check(0, "tfc", &of_clusters, Some(".spec.brokers"));
    let of_topics = [
        "Cluster",
        "Partitions",
        "Replicas",
        "Ready",
        "Topic",
        "Reason",
        "Age",
    ];
    check(1, "tft", &of_topics, None);
}
