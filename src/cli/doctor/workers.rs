//! Which workers run, and whether what is in force lets turns run with them.

use std::{collections::BTreeMap, time::Duration};

use teamster_mesh::registry::Catalog;
use teamster_protocol::{
    Arguments, FunctionId,
    function::approval::{ExplainReply, ExplainRequest},
    hook::Point,
};
use teamster_telemetry::chain;

use super::{Finding, State, live};
use crate::{
    cli::{config, fit, workers::micro},
    client::Client,
    config::{explain::Layer, section::named},
    host,
};

/// How long the registry may take to show all workers.
const WORKERS_WAIT: Duration = Duration::from_secs(3);

/// All of it.
pub(super) async fn all(client: &Client) -> Vec<Finding> {
    let missing = match client.wait_for_workers(&host::WORKERS, WORKERS_WAIT).await {
        Ok(missing) => missing,
        Err(error) => return vec![Finding::new("workers", State::Failed, chain(&error))],
    };
    let Ok(catalog) = client.catalog().await else {
        return vec![Finding::new(
            "workers",
            State::Failed,
            "the registry cannot be read",
        )];
    };
    let silent = silent(client, &catalog).await;
    let mut findings = vec![registered(&catalog, &missing, &silent)];
    findings.extend(gate(client, &catalog).await);
    findings.extend(model(client).await);
    findings.extend(live::configuration(client).await);
    findings.extend(policy_in_force(client).await);
    findings
}

/// How many processes of each worker are registered and do not answer.
async fn silent(client: &Client, catalog: &Catalog) -> BTreeMap<String, usize> {
    let processes: Vec<_> = catalog.workers.iter().map(AsRef::as_ref).collect();
    let health = micro::health(client.mesh(), &processes).await;
    let mut silent = BTreeMap::new();
    for (worker, health) in processes.iter().zip(health) {
        if health.ping_ms.is_none() {
            *silent.entry(worker.name.to_string()).or_default() += 1;
        }
    }
    silent
}

/// Each worker once, however many processes of it are registered.
fn registered(catalog: &Catalog, missing: &[String], silent: &BTreeMap<String, usize>) -> Finding {
    let mut counts: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for worker in &catalog.workers {
        let (count, version) = counts.entry(worker.name.as_str()).or_default();
        *count += 1;
        // The newest comes last.
        *version = worker.version.as_str();
    }
    let answers = |name: &str| {
        let count = counts.get(name).map_or(0, |(count, _)| *count);
        count.saturating_sub(silent.get(name).copied().unwrap_or(0))
    };
    let gone: Vec<&str> = host::WORKERS
        .into_iter()
        .filter(|name| answers(name) == 0)
        .collect();
    if !missing.is_empty() || !gone.is_empty() {
        return Finding::new(
            "workers",
            State::Failed,
            format_args!("nobody runs: {}", gone.join(", ")),
        )
        .hint("`teamster up` runs all, `teamster worker NAME...` some");
    }
    let named: Vec<String> = counts
        .iter()
        .map(|(name, (count, version))| {
            let silent = silent.get(*name).copied().unwrap_or(0);
            match (count - silent, silent) {
                (1, 0) => format!("{name} {version}"),
                (living, 0) => format!("{name} {version} ({living} processes)"),
                (living, silent) => {
                    format!(
                        "{name} {version} ({living} of {} processes answer)",
                        living + silent
                    )
                }
            }
        })
        .collect();
    let detail = named.join(", ");
    if silent.is_empty() {
        return Finding::new("workers", State::Ok, detail);
    }
    Finding::new("workers", State::Warning, detail).hint(
        "those that do not answer have just ended, or hang; a registration ends by itself within 30 s. `teamster workers ls` \
         shows them",
    )
}

/// Whether calls are judged at all, and whether what must be heard can be.
async fn gate(client: &Client, catalog: &Catalog) -> Vec<Finding> {
    let mut findings: Vec<Finding> = fit::hooks(client, catalog)
        .await
        .into_iter()
        .map(|unfit| Finding::new("hooks", State::Failed, unfit.problem).hint(unfit.next))
        .collect();
    let is_bound = catalog
        .hooks
        .iter()
        .any(|(binding, worker)| binding.point == Point::PreTrigger && worker == "approval-gate");
    if is_bound {
        let detail = "the approval-gate's hook is bound";
        findings.push(Finding::new("gate", State::Ok, detail));
        return findings;
    }
    let required = fit::required(client).await;
    let is_required = required.is_none_or(|names| names.iter().any(|name| name == "approval-gate"));
    let what = if is_required {
        "every call is denied"
    } else {
        "no call is judged by the policy"
    };
    findings.push(
        Finding::new(
            "gate",
            State::Failed,
            format_args!("the approval-gate's hook is not bound: {what}"),
        )
        .hint("run the approval-gate: `teamster up`, or `teamster worker approval-gate`"),
    );
    findings
}

/// The model of turns that name none, as what is in force has it.
async fn model(client: &Client) -> Option<Finding> {
    Some(match fit::model(client).await? {
        Ok(model) => Finding::new(
            "model-live",
            State::Ok,
            format_args!("turns that name none ask for {model}"),
        ),
        Err(unfit) => Finding::new("model-live", State::Failed, unfit.problem).hint(unfit.next),
    })
}

/// Whether the gate that runs has taken what stands in its policy file.
async fn policy_in_force(client: &Client) -> Option<Finding> {
    let request = ExplainRequest {
        function: FunctionId::parse("approval::list").ok()?,
        arguments: Arguments::empty(),
        workspace: None,
    };
    // A gate that does not answer is a finding of its own.
    let reply: ExplainReply = client.operate("approval::explain", &request).await.ok()?;
    let Some(note) = reply.note else {
        return Some(Finding::new(
            "policy-live",
            State::Ok,
            format_args!("policy {} is in force", reply.judgement.policy.short()),
        ));
    };
    if !reply.file_gone {
        return Some(
            Finding::new("policy-live", State::Failed, note)
                .hint("correct the policy file: it is read again within seconds"),
        );
    }
    if is_file_named(client).await {
        return Some(Finding::new("policy-live", State::Failed, note).hint(
            "write it again, or take its name out of the configuration: `teamster config explain approval-gate.policy_file` \
             shows where it stands",
        ));
    }
    // Nobody asked for a file of its own: to remove the one in the data directory is how it is taken back.
    Some(Finding::new("policy-live", State::Warning, note).hint(
        "nothing, if it was removed on purpose; else write it again: it is read within seconds",
    ))
}

/// Whether a layer names the gate's policy file, so that it must be there.
async fn is_file_named(client: &Client) -> bool {
    let Some(kind) = named("approval-gate") else {
        return false;
    };
    let status = config::status(client, kind).await;
    let values = status.into_iter().flat_map(|status| status.values);
    values
        .filter(|value| value.key == "approval-gate.policy_file")
        .any(|value| value.layer != Layer::CompiledIn)
}

#[cfg(test)]
mod tests {
    use teamster_protocol::{
        id::{Incarnation, WorkerName},
        registry,
    };

    use super::*;

    #[test]
    fn a_worker_is_named_once_and_one_that_does_not_answer_is_told() {
        let worker = |name: &str, incarnation: &str| registry::Worker {
            name: WorkerName::parse(name).expect("a name"),
            incarnation: Incarnation::parse(incarnation).expect("an incarnation"),
            version: "1".to_owned(),
            description: String::new(),
            functions: Vec::new(),
        };
        let mut catalog = Catalog {
            workers: host::WORKERS.map(|name| worker(name, "a").into()).to_vec(),
            ..Catalog::default()
        };
        catalog.workers.push(worker("router", "b").into());
        let silent = |count: usize| BTreeMap::from([("router".to_owned(), count)]);
        for (silent, state, says) in [
            (BTreeMap::new(), State::Ok, "router 1 (2 processes)"),
            (
                silent(1),
                State::Warning,
                "router 1 (1 of 2 processes answer)",
            ),
            (silent(2), State::Failed, "nobody runs: router"),
        ] {
            let finding = registered(&catalog, &[], &silent);
            assert_eq!(finding.state, state, "{finding:?}");
            assert!(finding.detail.contains(says), "{finding:?}");
            assert_eq!(finding.detail.matches("router").count(), 1, "{finding:?}");
            assert_eq!(finding.hint.is_some(), state != State::Ok, "{finding:?}");
        }
    }
}
