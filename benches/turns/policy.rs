//! What one decision of the policy costs: the built-in policy, and one with a hundred rules of the user's own before it.
//! Pure: no server, no worker.

use std::{hint::black_box, time::Instant};

use teamster_core::policy::{Policy, judge};
use teamster_protocol::{Arguments, Class, Contract, FunctionId, Visibility};

/// Decisions of one measurement.
const DECISIONS: u32 = 20_000;
/// Rules of the user's own.
const RULES: usize = 100;

/// Prints both.
pub(crate) fn print() {
    let built_in = Policy::compiled_in().expect("the built-in policy");
    let rules: Vec<String> = (0..RULES)
        .map(|number| format!("      - {{ effect: deny, function: \"team{number}::*\" }}"))
        .collect();
    let rules = rules.join("\n");
    let layered = Policy::layered(&format!(
        "version: 1\nlayers:\n  - name: own\n    rules:\n{rules}"
    ))
    .expect("a policy of the user's own");
    let mut contract = Contract::new::<(), ()>(
        FunctionId::parse("fs::write").expect("an id"),
        "Writes a file.",
    );
    contract.class = Class::Write;
    contract.target = Some("/path".to_owned());
    contract.visibility = Visibility::Agent;
    let content = "x".repeat(1024);
    let text = format!(r#"{{"path":"src/part.rs","content":"{content}"}}"#);
    let arguments = Arguments::parse(&text).expect("arguments");
    for (name, policy) in [("built-in", &built_in), ("with 100 rules", &layered)] {
        let begun = Instant::now();
        for _ in 0..DECISIONS {
            black_box(judge(
                policy,
                &contract,
                black_box(&arguments),
                Some("/srv/w"),
            ));
        }
        let micros = begun.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS);
        println!("one decision, policy {name:<15} {micros:>8.2} us");
    }
}
