//! Reads a file of manifests: YAML documents, each admitted by the rules of the CRDs. Every error names the document
//! and the field.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde::Deserialize;
use serde_json::Value;
use taffrail_crds::admission::{Admitted, FieldError, admit};
use taffrail_crds::{Cluster, Topic};
use thiserror::Error;

use crate::json::Json;
use crate::object::ObjectKey;

/// Largest file that is read. A Topic takes about 300 bytes, so this is some 50,000 of them.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The documents of a file, as they stand.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestFile {
    /// Where it was read.
    pub path: PathBuf,
    /// Documents that are not empty.
    pub documents: Vec<Document>,
}

/// One YAML document.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Position in the file, from 1.
    pub position: usize,
    /// Its content.
    pub value: Value,
}

/// The admitted objects of a file.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Clusters and the documents they came from.
    pub clusters: Vec<(ObjectKey, Cluster, Value)>,
    /// Topics and the documents they came from, in the order of the file.
    pub topics: Vec<(ObjectKey, Topic, Value)>,
}

/// Why a file cannot be used. Displays as one line, or one line an error.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is larger than `FILE_BYTES_MAX`.
    #[error("{}: has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not YAML.
    #[error("{}: document {position} is not YAML: {error}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The document, from 1.
        position: usize,
        /// Why; names line and column.
        error: String,
    },
    /// Manifests break rules.
    #[error("{0}")]
    Refused(Refused),
}

/// All errors of all documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused(pub Vec<RefusedField>);

/// One error of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedField {
    /// File and object, for example `quickstart.yaml: Topic orders`.
    pub object: String,
    /// Field and what is wrong with it.
    pub error: FieldError,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refused) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{}: {}", refused.object, refused.error)?;
        }
        Ok(())
    }
}

/// Reads the documents of a file.
pub fn read(path: &Path) -> Result<ManifestFile, ManifestError> {
    let failed = |error| ManifestError::Read {
        path: path.to_owned(),
        error,
    };
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(ManifestError::TooLarge {
            path: path.to_owned(),
        });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    parse(path, &text)
}

/// Splits a file's text into documents.
pub fn parse(path: &Path, text: &str) -> Result<ManifestFile, ManifestError> {
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let position = index + 1;
        match Json::deserialize(document) {
            Ok(Json(Value::Null)) => {}
            Ok(Json(value)) => documents.push(Document { position, value }),
            Err(error) => {
                return Err(ManifestError::Yaml {
                    path: path.to_owned(),
                    position,
                    error: error.to_string(),
                });
            }
        }
    }
    Ok(ManifestFile {
        path: path.to_owned(),
        documents,
    })
}

/// Admits every document as a new object. Two of one kind and name are refused, as the second would replace the first.
pub fn objects(file: &ManifestFile) -> Result<Objects, ManifestError> {
    let mut objects = Objects::default();
    let mut refused = Refused::default();
    for document in &file.documents {
        let name = document_name(file, document);
        let mut refuse = |error| {
            refused.0.push(RefusedField {
                object: name.clone(),
                error,
            });
        };
        match admit(&document.value, None) {
            Ok(Admitted::Cluster(cluster)) => {
                let key = crate::validate::key_of_cluster(&cluster);
                if objects.clusters.iter().any(|(known, ..)| *known == key) {
                    refuse(repeated("Cluster", &key));
                } else {
                    objects
                        .clusters
                        .push((key, *cluster, document.value.clone()));
                }
            }
            Ok(Admitted::Topic(topic)) => {
                let key = crate::validate::key_of_topic(&topic);
                if objects.topics.iter().any(|(known, ..)| *known == key) {
                    refuse(repeated("Topic", &key));
                } else {
                    objects.topics.push((key, *topic, document.value.clone()));
                }
            }
            Err(errors) => errors.into_iter().for_each(refuse),
        }
    }
    if refused.0.is_empty() {
        Ok(objects)
    } else {
        Err(ManifestError::Refused(refused))
    }
}

fn repeated(kind: &str, key: &ObjectKey) -> FieldError {
    FieldError {
        field: "metadata.name".to_owned(),
        message: format!("{kind} {key} is written twice in this file"),
    }
}

fn document_name(file: &ManifestFile, document: &Document) -> String {
    let text = |pointer| document.value.pointer(pointer).and_then(Value::as_str);
    let path = file.path.display();
    match (text("/kind"), text("/metadata/name")) {
        (Some(kind), Some(name)) => format!("{path}: {kind} {name}"),
        _ => format!("{path}: document {}", document.position),
    }
}
