//! Which layers this host has, by trial.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Error, group::Groups, helper, spawn};
use crate::{
    config::Config,
    layer::{Layer, Level},
    stage::{
        self,
        frame::{Limits, Outer, Report, Spec},
    },
    stop::Stop,
};

/// How long one trial may take.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// What is said of a layer that rests on a missing one.
const NOT_TRIED: &str = "not tried";

/// The level of every layer. Starts the helper at most once for each layer that is missing; blocks until it has answered.
pub(crate) fn levels(config: &Config) -> Vec<Level> {
    look(config).0
}

/// The same, with the place for control groups.
pub(super) fn look(config: &Config) -> (Vec<Level>, Option<Groups>) {
    let groups = config.control_groups.then(Groups::detect).flatten();
    let group = match &groups {
        Some(groups) => Level::holds(Layer::Cgroup, groups.level()),
        None if !config.control_groups => Level::missing(Layer::Cgroup, "switched off"),
        None => Level::missing(
            Layer::Cgroup,
            "no group can be made below the worker's own; limits hold for each process",
        ),
    };
    (trials(config, group), groups)
}

/// Tries with all layers, and with those that are left, until a trial comes to its end.
fn trials(config: &Config, group: Level) -> Vec<Level> {
    let mut found = vec![group];
    let mut layers: Vec<Layer> = Layer::ALL
        .into_iter()
        .filter(|layer| *layer != Layer::Cgroup)
        .collect();
    loop {
        match trial(config, &layers) {
            Ok(Report::Probed(levels)) => {
                found.extend(
                    levels
                        .into_iter()
                        .filter(|level| layers.contains(&level.name)),
                );
                break;
            }
            Ok(Report::Failed(failure)) => {
                let layer = failure.layer.filter(|layer| layers.contains(layer));
                let why = failure.to_string();
                let Some(layer) = layer else {
                    found.extend(all(&layers, &why));
                    break;
                };
                layers.retain(|other| *other != layer);
                found.push(Level::missing(layer, why));
                if Layer::ALWAYS.contains(&layer) {
                    let rest = format!("{NOT_TRIED}, because {} is missing", layer.name());
                    found.extend(all(&layers, &rest));
                    break;
                }
            }
            Ok(Report::Ended { .. }) => {
                found.extend(all(&layers, "the helper ran something else"));
                break;
            }
            Err(error) => {
                found.extend(all(&layers, &error.to_string()));
                break;
            }
        }
    }
    found.sort_by_key(|level| Layer::ALL.iter().position(|layer| *layer == level.name));
    found
}

fn all(layers: &[Layer], why: &str) -> Vec<Level> {
    layers
        .iter()
        .map(|layer| Level::missing(*layer, why))
        .collect()
}

fn trial(config: &Config, layers: &[Layer]) -> Result<Report, Error> {
    if stage::is_stage() {
        // An executable that serves before it looks whether it is a stage would start itself without end.
        return Err(Error::Stage(
            "this executable does not call stage::main first".to_owned(),
        ));
    }
    let spec = Spec {
        layers: layers.to_vec(),
        workspace: None,
        cwd: String::new(),
        masks: Vec::new(),
        shown: Vec::new(),
        files: Vec::new(),
        stdin: String::new(),
        argv: Vec::new(),
        env: Vec::new(),
        limits: Limits {
            wall_ms: 0,
            cpu_seconds: 10,
            memory_bytes: u64::MAX,
            processes: 16,
            file_bytes: 0,
            kept_bytes: 0,
        },
    };
    let stop = Stop {
        cancel: CancellationToken::new(),
        until: Instant::now() + TRIAL_MAX,
    };
    let job = spawn::Job {
        helper: &helper(config),
        outer: &Outer {
            layers: layers.to_vec(),
            is_probe: true,
        },
        spec: &spec,
        group: None,
    };
    spawn::talk(&job, &stop).map(|(report, _)| report)
}

/// The first layer of `minimum` that does not hold; one that was not tried only if none was tried and failed.
pub(crate) fn missing<'a>(minimum: &[Layer], levels: &'a [Level]) -> Option<&'a Level> {
    let is_needed = |layer| minimum.contains(layer) || Layer::ALWAYS.contains(layer);
    levels
        .iter()
        .filter(|level| !level.holds && is_needed(&level.name))
        .min_by_key(|level| level.level.starts_with(NOT_TRIED))
}

/// An error for a layer of `minimum` that does not hold.
pub(crate) fn require(minimum: &[Layer], levels: &[Level]) -> Result<(), Error> {
    match missing(minimum, levels) {
        None => Ok(()),
        Some(level) => Err(Error::LayerMissing {
            layer: level.name,
            why: level.level.clone(),
        }),
    }
}

/// All levels in one line.
pub(crate) fn summary(levels: &[Level]) -> String {
    let words: Vec<String> = levels
        .iter()
        .map(|level| {
            let mark = if level.holds { "" } else { "MISSING: " };
            format!("{} ({mark}{})", level.name.name(), level.level)
        })
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbx_3_a_missing_layer_of_the_minimum_is_an_error_with_its_name() {
        let levels: Vec<Level> = Layer::ALL
            .into_iter()
            .map(|layer| match layer {
                Layer::Seccomp | Layer::Cgroup => Level::missing(layer, "gone"),
                layer => Level::holds(layer, "own"),
            })
            .collect();
        let error = require(&Layer::MINIMUM, &levels).expect_err("missing");
        assert!(error.to_string().contains("seccomp"), "{error}");
        assert!(require(&Layer::ALWAYS, &levels).is_ok());
        assert!(require(&[Layer::Cgroup], &levels).is_err());
        assert!(summary(&levels).contains("seccomp (MISSING: gone)"));
        // The one that failed is named, not those that rest on it.
        let levels = [
            Level::missing(Layer::UserNs, "not tried, because mount_ns is missing"),
            Level::missing(Layer::MountNs, "gone"),
        ];
        let error = require(&Layer::MINIMUM, &levels).expect_err("missing");
        assert!(error.to_string().contains("layer mount_ns is"), "{error}");
        // What must always hold need not be named.
        let none = vec![Level::missing(Layer::PidNs, "gone")];
        assert!(require(&[], &none).is_err());
    }
}
