//! Compiled function policies: compiling a glob costs far more than asking it, and each call of each turn asks.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use teamster_core::turn::call::Allowed;
use teamster_protocol::policy::FunctionPolicy;

/// Policies that are kept; a deployment has few different ones.
const POLICIES_MAX: usize = 64;

/// The policies that were compiled last.
#[derive(Default)]
pub(super) struct Compiled(Mutex<VecDeque<(FunctionPolicy, Arc<Allowed>)>>);

impl Compiled {
    /// What a turn with this policy may call.
    pub(super) fn get(&self, policy: Option<&FunctionPolicy>) -> Arc<Allowed> {
        let Some(policy) = policy else {
            return Arc::new(Allowed::compile(None));
        };
        if let Some((_, allowed)) = self.kept().iter().find(|(known, _)| known == policy) {
            return Arc::clone(allowed);
        }
        let allowed = Arc::new(Allowed::compile(Some(policy)));
        let mut kept = self.kept();
        if kept.len() >= POLICIES_MAX {
            kept.pop_front();
        }
        kept.push_back((policy.clone(), Arc::clone(&allowed)));
        allowed
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<(FunctionPolicy, Arc<Allowed>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use teamster_protocol::FunctionId;

    use super::*;

    #[test]
    fn each_policy_keeps_its_own_meaning_and_few_are_kept() {
        let compiled = Compiled::default();
        let id = |number: usize| FunctionId::parse(format!("t::f{number}")).expect("an id");
        for round in 0..2 {
            for number in 0..2 * POLICIES_MAX {
                let policy = FunctionPolicy {
                    allow: vec![id(number).to_string()],
                    ..FunctionPolicy::default()
                };
                let allowed = compiled.get(Some(&policy));
                assert!(allowed.names(&id(number)), "{round} {number}");
                assert!(!allowed.names(&id(number + 1)), "{round} {number}");
            }
        }
        assert!(compiled.kept().len() <= POLICIES_MAX);
        assert!(!compiled.get(None).names(&id(0)));
    }
}
