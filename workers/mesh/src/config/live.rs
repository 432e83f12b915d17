//! A worker's section of the configuration as one immutable snapshot that is replaced whole.

use std::{fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A worker's section of the configuration.
pub trait Section: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Keys, with dots, whose change counts from the worker's next start only. All others count at once.
    const COLD: &'static [&'static str] = &[];

    /// Keys, with dots, that only the machine's own layers may set: what is set live in the mesh must not name them.
    const LOCAL: &'static [&'static str] = &[];

    /// Keys whose change may count so much later for turns, because somebody else remembers what they said: every key that has
    /// one of these names in it, and how long it is remembered.
    const LATE: (&'static [&'static str], Duration) = (&[], Duration::ZERO);

    /// Finds values that have the right form and cannot be used all the same.
    fn check(&self) -> Result<(), Problem>;
}

/// Why a section cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Problem {
    /// The key within the section, with dots, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What is wrong, in words.
    pub problem: String,
}

impl Problem {
    /// What is wrong with the value of a key.
    pub fn of(key: &str, problem: impl fmt::Display) -> Self {
        Self {
            key: Some(key.to_owned()),
            problem: problem.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

/// Reads a section and checks it: the one way to a section that is in force.
pub fn parse<C: Section>(section: &Value) -> Result<C, Problem> {
    if !section.is_object() {
        return Err(Problem {
            key: None,
            problem: "it must be a mapping".to_owned(),
        });
    }
    let config = C::deserialize(section).map_err(|error| Problem {
        key: None,
        problem: teamster_protocol::form::words(&error.to_string()),
    })?;
    config.check()?;
    Ok(config)
}

/// A section that is in force, and that may be replaced while its worker runs: a cheap handle. Whoever needs a value reads the
/// snapshot at that moment; whoever must not see a change keeps the snapshot.
pub struct Live<C> {
    current: Arc<ArcSwap<C>>,
}

impl<C> Clone for Live<C> {
    fn clone(&self) -> Self {
        Self {
            current: Arc::clone(&self.current),
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for Live<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.current.load()).finish()
    }
}

impl<C> Live<C> {
    /// A section that is in force from the start.
    pub fn new(config: C) -> Self {
        Self {
            current: Arc::new(ArcSwap::from_pointee(config)),
        }
    }

    /// The snapshot that is in force now.
    pub fn load(&self) -> Arc<C> {
        self.current.load_full()
    }
}

/// What a host may do with a worker's section without knowing its type.
pub trait Take: Send + Sync {
    /// Puts a section in force, or keeps the last good one and says what is wrong.
    fn take(&self, section: &Value) -> Result<(), Problem>;

    /// The section that is in force.
    fn in_force(&self) -> Value;

    /// [`Section::COLD`].
    fn cold(&self) -> &'static [&'static str];
}

impl<C: Section> Take for Live<C> {
    fn take(&self, section: &Value) -> Result<(), Problem> {
        self.current.store(Arc::new(parse(section)?));
        Ok(())
    }

    fn in_force(&self) -> Value {
        serde_json::to_value(&*self.current.load()).unwrap_or_default()
    }

    fn cold(&self) -> &'static [&'static str] {
        C::COLD
    }
}

/// Something that is made of a section and made anew when another one is in force.
pub struct Derived<C, T> {
    live: Live<C>,
    make: fn(&C) -> T,
    made: ArcSwap<Made<C, T>>,
}

struct Made<C, T> {
    of: Arc<C>,
    made: Arc<T>,
}

impl<C, T> Derived<C, T> {
    /// Made of what is in force now.
    pub fn new(live: Live<C>, make: fn(&C) -> T) -> Self {
        let of = live.load();
        let first = Made {
            made: Arc::new(make(&of)),
            of,
        };
        Self {
            live,
            make,
            made: ArcSwap::from_pointee(first),
        }
    }

    /// What belongs to the section that is in force now.
    pub fn load(&self) -> Arc<T> {
        let now = self.live.current.load();
        let last = self.made.load();
        if Arc::ptr_eq(&last.of, &now) {
            return Arc::clone(&last.made);
        }
        let of = Arc::clone(&now);
        let made = Arc::new((self.make)(&of));
        // Two that make it at the same time make the same.
        self.made.store(Arc::new(Made {
            of,
            made: Arc::clone(&made),
        }));
        made
    }
}

impl<C, T: fmt::Debug> fmt::Debug for Derived<C, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Derived")
            .field(&self.made.load().made)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Loaf {
        slices: u32,
    }

    impl Default for Loaf {
        fn default() -> Self {
            Self { slices: 8 }
        }
    }

    impl Section for Loaf {
        const COLD: &'static [&'static str] = &["slices"];

        fn check(&self) -> Result<(), Problem> {
            match self.slices {
                0 => Err(Problem::of("slices", "must be 1 or more")),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn conf_1_a_section_is_replaced_whole_or_kept() {
        let live = Live::new(Loaf::default());
        let halves = Derived::new(live.clone(), |loaf| loaf.slices / 2);
        let kept = live.load();
        for (section, result, slices) in [
            (json!({"slices": 6}), Ok(()), 6),
            (json!({"slices": -1}), Err("expected a whole number"), 6),
            (json!({"slices": 0}), Err("slices: must be 1 or more"), 6),
            (json!({"slice": 3}), Err("unknown field"), 6),
            (json!([7]), Err("must be a mapping"), 6),
            (json!("x"), Err("must be a mapping"), 6),
            (json!({}), Ok(()), 8),
            (json!({"slices": 10}), Ok(()), 10),
        ] {
            let taken = live.take(&section).map_err(|problem| problem.to_string());
            match (taken, result) {
                (Ok(()), Ok(())) => {}
                (Err(said), Err(want)) if said.contains(want) => {}
                (taken, _) => panic!("{section}: {taken:?}"),
            }
            assert_eq!(live.load().slices, slices, "{section}");
            assert_eq!(*halves.load(), slices / 2, "{section}");
            assert_eq!(live.in_force(), json!({"slices": slices}));
        }
        assert_eq!(kept.slices, 8, "a snapshot that is kept does not change");
        assert!(Arc::ptr_eq(&halves.load(), &halves.load()), "made once");
        assert_eq!(Take::cold(&live), ["slices"]);
    }
}
