//! Why a configuration is refused: each error names the key, the value and what is allowed.

use std::fmt;

/// One key that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such name.
    #[error("{name}: unknown config{}", hint_text(hint))]
    Unknown {
        /// The name as written.
        name: String,
        /// What to write instead, where that is known.
        hint: Option<String>,
    },
    /// The value cannot be read as its type or is out of bounds.
    #[error("{name}: invalid value \"{value}\": must be {allowed}")]
    Invalid {
        /// The config's name.
        name: String,
        /// The value as written.
        value: String,
        /// What may stand there, to follow "must be".
        allowed: String,
    },
    /// The value is longer than any is.
    #[error("{name}: the value has {bytes} bytes, and may have at most {most}")]
    TooLong {
        /// The config's name.
        name: String,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// A config without a default is not set.
    #[error("{name}: must be set to {allowed}")]
    Missing {
        /// The config's name.
        name: String,
        /// What may stand there.
        allowed: String,
    },
    /// The value is fine alone but not beside another one.
    #[error("{name}: \"{value}\" {reason}")]
    Conflict {
        /// The config's name.
        name: String,
        /// The value as written.
        value: String,
        /// The other value and the rule, as the end of a sentence.
        reason: String,
    },
    /// The config exists but cannot be changed while the broker runs, or not at this level.
    #[error("{name}: {reason}")]
    NotDynamic {
        /// The config's name.
        name: String,
        /// Where it can be changed.
        reason: String,
    },
}

impl ConfigError {
    /// The name of the config that is refused.
    pub fn name(&self) -> &str {
        match self {
            ConfigError::Unknown { name, .. }
            | ConfigError::Invalid { name, .. }
            | ConfigError::Missing { name, .. }
            | ConfigError::Conflict { name, .. }
            | ConfigError::NotDynamic { name, .. }
            | ConfigError::TooLong { name, .. } => name,
        }
    }
}

fn hint_text(hint: &Option<String>) -> String {
    hint.as_ref()
        .map(|hint| format!("; {hint}"))
        .unwrap_or_default()
}

/// Everything that is wrong with one configuration, so that a user fixes it in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
