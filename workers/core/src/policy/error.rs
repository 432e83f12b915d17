//! Why a policy file is refused.

use teamster_protocol::limits;

/// Why a policy file is refused. Nothing of a refused file takes effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is too long to be read.
    #[error("the policy has more than {} bytes", limits::YAML_BYTES_MAX)]
    TooLong,
    /// It is not of the form of a policy file.
    #[error("{}{message}{}", place(*line, *column), note(hint.as_deref()))]
    Form {
        /// The line, from 1; absent where the parser knows none.
        line: Option<usize>,
        /// The column, from 1; absent where the parser knows none.
        column: Option<usize>,
        /// What is wrong there.
        message: String,
        /// What was probably meant, or why the word is not known.
        hint: Option<String>,
    },
    /// Two layers have one name.
    #[error("two layers have the name {layer:?}")]
    Twice {
        /// The name.
        layer: String,
    },
    /// The layer cannot be replaced.
    #[error("the layer {layer:?} is compiled in and cannot be replaced: give yours another name")]
    Fixed {
        /// Its name.
        layer: String,
    },
    /// There are too many rules.
    #[error("the policy has more than {} rules", limits::POLICY_RULES_MAX)]
    TooManyRules,
}

fn place(line: Option<usize>, column: Option<usize>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}: "),
        _ => String::new(),
    }
}

fn note(hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!(" ({hint})"))
}
