//! What the standard variables of OpenTelemetry say: whether anything is exported, where to, how, and which traces.
//!
//! Pure: it reads through a function that it is given. A value that cannot be used is an error that names the variable; an
//! empty one counts as unset, as the specification wants it.

use std::{collections::HashMap, time::Duration};

use opentelemetry_sdk::trace::Sampler;

use crate::{Error, Redacted};

/// Where a collector listens if only `otlp` was asked for.
const ENDPOINT_DEFAULT: &str = "http://localhost:4318";
/// How long one export may take.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// The longest time that is taken for one export.
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
/// Pause in which finished spans gather before they are sent. A process that is killed loses what it finished in it.
const DELAY_DEFAULT: Duration = Duration::from_millis(200);
/// Finished spans that wait at most; further ones are dropped and counted.
const QUEUE_DEFAULT: usize = 2048;
/// The largest queue that is taken.
const QUEUE_MAX: usize = 65_536;
/// Spans sent at once.
const BATCH_DEFAULT: usize = 512;

/// What is exported.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where spans go.
    pub(crate) traces: Option<Target>,
    /// Where figures go.
    pub(crate) metrics: Option<Target>,
    /// Which traces are kept.
    pub(crate) sampler: Sampler,
    /// Pause in which spans gather.
    pub(crate) delay: Duration,
    /// Spans that wait at most.
    pub(crate) queue: usize,
    /// Spans sent at once.
    pub(crate) batch: usize,
}

/// One signal's collector.
#[derive(Clone, PartialEq)]
pub(crate) struct Target {
    /// The whole address.
    pub(crate) endpoint: String,
    /// Headers of each request; they may hold keys.
    pub(crate) headers: HashMap<String, String>,
    /// How long one export may take.
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("endpoint", &Redacted(&self.endpoint))
            .field("headers", &self.headers.len())
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Reads the variables. `get` gives a variable's value.
pub(crate) fn plan(get: &dyn Fn(&str) -> Option<String>) -> Result<Plan, Error> {
    let vars = Vars { get };
    let is_disabled = vars
        .of("OTEL_SDK_DISABLED")
        .is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let target = |signal: Signal| {
        if is_disabled {
            Ok(None)
        } else {
            vars.target(signal)
        }
    };
    let traces = target(Signal::Traces)?;
    let sampler = vars.sampler()?;
    Ok(Plan {
        metrics: target(Signal::Metrics)?,
        sampler: match &traces {
            Some(_) => sampler,
            // Nobody here will see a span: others must not keep parts of a trace whose root is missing.
            None => Sampler::ParentBased(Box::new(Sampler::AlwaysOff)),
        },
        traces,
        delay: vars
            .number("OTEL_BSP_SCHEDULE_DELAY")?
            .map_or(DELAY_DEFAULT, Duration::from_millis)
            .min(TIMEOUT_MAX),
        queue: vars
            .count("OTEL_BSP_MAX_QUEUE_SIZE")?
            .unwrap_or(QUEUE_DEFAULT)
            .clamp(1, QUEUE_MAX),
        batch: vars
            .count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")?
            .unwrap_or(BATCH_DEFAULT)
            .clamp(1, QUEUE_MAX),
    })
}

#[derive(Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn upper(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }
}

struct Vars<'a> {
    get: &'a dyn Fn(&str) -> Option<String>,
}

impl Vars<'_> {
    fn of(&self, name: &str) -> Option<String> {
        (self.get)(name)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    }

    /// A setting of all signals that one signal may have for itself; with the name of the variable that holds it.
    fn setting(&self, signal: Signal, name: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.upper());
        let general = format!("OTEL_EXPORTER_OTLP_{name}");
        [own, general].into_iter().find_map(|variable| {
            let text = self.of(&variable)?;
            Some((variable, text))
        })
    }

    /// Where a signal goes, if it goes anywhere: an endpoint or the word `otlp` asks for it.
    fn target(&self, signal: Signal) -> Result<Option<Target>, Error> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.upper());
        let is_wanted = match self.of(&exporter).as_deref() {
            Some("none") => return Ok(None),
            Some("otlp") => true,
            Some(other) => {
                return Err(refused(
                    &exporter,
                    other,
                    "only `otlp` and `none` are built in",
                ));
            }
            None => false,
        };
        let Some((variable, endpoint)) = self.endpoint(signal, is_wanted) else {
            return Ok(None);
        };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(refused(
                &variable,
                &Redacted(&endpoint).to_string(),
                "an address begins with http:// or https://",
            ));
        }
        if let Some((variable, protocol)) = self.setting(signal, "PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(refused(
                &variable,
                &protocol,
                "this build speaks `http/protobuf`; collectors take it on port 4318",
            ));
        }
        let timeout = match self.setting(signal, "TIMEOUT") {
            Some((variable, _)) => self.number(&variable)?.map(Duration::from_millis),
            None => None,
        };
        Ok(Some(Target {
            endpoint,
            headers: self.headers(signal)?,
            timeout: timeout
                .unwrap_or(TIMEOUT_DEFAULT)
                .clamp(Duration::from_millis(1), TIMEOUT_MAX),
        }))
    }

    /// A signal's own endpoint is taken as it is; the general one is a base.
    fn endpoint(&self, signal: Signal, is_wanted: bool) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.upper());
        if let Some(endpoint) = self.of(&own) {
            return Some((own, endpoint));
        }
        let general = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let base = self
            .of(general)
            .or_else(|| is_wanted.then(|| ENDPOINT_DEFAULT.to_owned()))?;
        let endpoint = format!("{}/{}", base.trim_end_matches('/'), signal.path());
        Some((general.to_owned(), endpoint))
    }

    /// `name=value,name=value`, values percent-encoded.
    fn headers(&self, signal: Signal) -> Result<HashMap<String, String>, Error> {
        let Some((variable, list)) = self.setting(signal, "HEADERS") else {
            return Ok(HashMap::new());
        };
        // The text is not shown: it holds keys.
        let bad = || {
            refused(
                &variable,
                "***",
                "headers are written name=value,name=value with percent-encoded values",
            )
        };
        list.split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').ok_or_else(bad)?;
                let name = name.trim();
                let is_name = !name.is_empty()
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
                let value = percent_decoded(value.trim()).ok_or_else(bad)?;
                let is_value = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                if is_name && is_value {
                    Ok((name.to_owned(), value))
                } else {
                    Err(bad())
                }
            })
            .collect()
    }

    fn sampler(&self) -> Result<Sampler, Error> {
        let variable = "OTEL_TRACES_SAMPLER";
        let name = self.of(variable);
        let ratio = || {
            let argument = "OTEL_TRACES_SAMPLER_ARG";
            let Some(text) = self.of(argument) else {
                return Ok(Sampler::TraceIdRatioBased(1.0));
            };
            let ratio = text
                .parse::<f64>()
                .ok()
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| refused(argument, &text, "a share lies between 0 and 1"))?;
            Ok(Sampler::TraceIdRatioBased(ratio))
        };
        let below = |root: Sampler| Sampler::ParentBased(Box::new(root));
        Ok(match name.as_deref() {
            None | Some("parentbased_always_on") => below(Sampler::AlwaysOn),
            Some("parentbased_always_off") => below(Sampler::AlwaysOff),
            Some("parentbased_traceidratio") => below(ratio()?),
            Some("always_on") => Sampler::AlwaysOn,
            Some("always_off") => Sampler::AlwaysOff,
            Some("traceidratio") => ratio()?,
            Some(other) => {
                return Err(refused(
                    variable,
                    other,
                    "there are always_on, always_off, traceidratio, and these with parentbased_ before them",
                ));
            }
        })
    }

    fn number(&self, variable: &str) -> Result<Option<u64>, Error> {
        self.of(variable)
            .map(|text| {
                text.parse()
                    .map_err(|_| refused(variable, &text, "a whole number is expected"))
            })
            .transpose()
    }

    fn count(&self, variable: &str) -> Result<Option<usize>, Error> {
        let number = self.number(variable)?;
        Ok(number.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }
}

fn refused(variable: &str, value: &str, why: &'static str) -> Error {
    Error::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        why,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
        decoded.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Plan, Error> {
        plan(&|name| {
            vars.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn traces(vars: &[(&str, &str)]) -> Option<Target> {
        read(vars).expect("a plan").traces
    }

    #[test]
    fn without_the_variables_nothing_is_exported_and_nothing_sampled() {
        for vars in [
            &[][..],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
            ],
            &[
                ("OTEL_SDK_DISABLED", "TRUE"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"),
            ],
        ] {
            let plan = read(vars).expect("a plan");
            assert_eq!((plan.traces, plan.metrics), (None, None), "{vars:?}");
            assert_eq!(
                format!("{:?}", plan.sampler),
                "ParentBased(AlwaysOff)",
                "{vars:?}"
            );
        }
    }

    #[test]
    fn endpoints_are_bases_but_for_a_signals_own() {
        let general = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/x/");
        let plan = read(&[general]).expect("a plan");
        assert_eq!(
            plan.traces.expect("traces").endpoint,
            "http://c:4318/x/v1/traces"
        );
        assert_eq!(
            plan.metrics.expect("metrics").endpoint,
            "http://c:4318/x/v1/metrics"
        );
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/in");
        assert_eq!(
            traces(&[general, own]).expect("traces").endpoint,
            "https://t/in"
        );
        assert_eq!(
            traces(&[("OTEL_TRACES_EXPORTER", "otlp")])
                .expect("traces")
                .endpoint,
            "http://localhost:4318/v1/traces"
        );
    }

    #[test]
    fn headers_and_time_are_read_and_a_debug_text_holds_no_key() {
        let target = traces(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:pass@c"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20k3y, x-team = a",
            ),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ])
        .expect("traces");
        assert_eq!(
            target.headers.get("authorization").map(String::as_str),
            Some("Bearer k3y")
        );
        assert_eq!(target.headers.get("x-team").map(String::as_str), Some("a"));
        assert_eq!(target.timeout, Duration::from_millis(250));
        let shown = format!("{target:?}");
        assert!(!shown.contains("k3y") && !shown.contains("pass"), "{shown}");
    }

    #[test]
    fn what_cannot_be_used_names_its_variable() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        for (variable, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            ("OTEL_TRACES_EXPORTER", "jaeger"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "c:4317"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "k3y"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%0d%0a"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ] {
            let error = read(&[endpoint, (variable, value)])
                .expect_err(variable)
                .to_string();
            assert!(error.contains(variable), "{error}");
            assert!(!error.contains("k3y"), "{error}");
        }
        let ratio = [
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ];
        let error = read(&ratio).expect_err("a share").to_string();
        assert!(error.contains("OTEL_TRACES_SAMPLER_ARG"), "{error}");
    }

    #[test]
    fn each_sampler_has_its_name() {
        for (name, shown) in [
            ("always_on", "AlwaysOn"),
            ("traceidratio", "TraceIdRatioBased(0.25)"),
            (
                "parentbased_traceidratio",
                "ParentBased(TraceIdRatioBased(0.25))",
            ),
            ("parentbased_always_off", "ParentBased(AlwaysOff)"),
        ] {
            let plan = read(&[
                ("OTEL_TRACES_EXPORTER", "otlp"),
                ("OTEL_TRACES_SAMPLER", name),
                ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ])
            .expect("a plan");
            assert_eq!(format!("{:?}", plan.sampler), shown);
        }
    }
}
