//! A history that does not fit, and what fills the window.

use std::fmt;

use super::window::Certainty;

/// A request that does not fit even when every result is masked. Tokens are estimates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    /// The model's window.
    pub window: u64,
    /// How the window is known.
    pub certainty: Certainty,
    /// What a request may take of it.
    pub usable: u64,
    /// Requests that the provider refused as too large before this one.
    pub refused: u32,
    /// Tokens of the system prompt.
    pub system_prompt: u64,
    /// Tokens of the functions' schemas.
    pub functions: u64,
    /// Tokens of what users and notices say.
    pub users: u64,
    /// Tokens of what the model said and called.
    pub assistant: u64,
    /// Tokens of what stands in the place of results.
    pub results: u64,
}

impl Overflow {
    /// Tokens that are left for messages beside the system prompt and the functions' schemas.
    pub fn room(&self) -> u64 {
        self.usable
            .saturating_sub(self.system_prompt + self.functions)
    }

    /// Tokens of all parts.
    pub fn needed(&self) -> u64 {
        self.system_prompt + self.functions + self.users + self.assistant + self.results
    }
}

impl Overflow {
    fn window_words(&self) -> String {
        match self.certainty {
            Certainty::Known => format!("window {}", self.window),
            Certainty::Assumed => format!(
                "window {}, which is assumed because nobody says how large it is",
                self.window
            ),
            Certainty::Open => "nobody says how large the window is".to_owned(),
        }
    }
}

impl std::error::Error for Overflow {}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the request needs about {} tokens and may take {} ({}): system prompt {}, function schemas {}, user \
             messages {}, answers and calls {}, results with all of them masked {}",
            self.needed(),
            self.usable,
            self.window_words(),
            self.system_prompt,
            self.functions,
            self.users,
            self.assistant,
            self.results
        )?;
        if self.refused > 0 {
            write!(
                f,
                "; the provider refused {} larger request(s) before",
                self.refused
            )?;
        }
        Ok(())
    }
}
