//! Sets up the process's subscriber: where lines go, in which form, and which of them.

use std::{
    fs::{File, OpenOptions},
    io::IsTerminal as _,
    path::PathBuf,
    sync::Mutex,
    time::Duration,
};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::Targets,
    fmt::{format::JsonFields, writer::BoxMakeWriter},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{Error, export, flush, json::JsonLine, metric, otlp, outlet::Outlet, span, trace};

/// The environment variable that chooses lines: a list of `target=level`.
const FILTER_VARIABLE: &str = "TEAMSTER_LOG";
/// Ours from `info` on, everybody else's from `warn` on. A target is a prefix: `teamster` is all our packages.
const FILTER_DEFAULT: &str = "warn,teamster=info";

/// How long the end of a process waits for collectors, for spans and figures together.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// How a process logs. The default is right for a program in the foreground.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where lines go.
    pub sink: Sink,
    /// How a line looks.
    pub format: Format,
    /// Which lines: a list of `target=level`. `None` asks `TEAMSTER_LOG`, then takes `warn,teamster=info`.
    pub filter: Option<String>,
}

/// Where lines go.
#[derive(Debug, Clone, Default)]
pub enum Sink {
    /// Standard error. Standard output belongs to answers.
    #[default]
    Stderr,
    /// This file, appended to; readable by its owner only.
    File(PathBuf),
}

/// How a line looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One JSON document a line.
    Json,
    /// Text for people.
    Text,
}

/// The form that was decided for this process.
#[derive(Debug, Clone, Copy)]
enum Look {
    Coloured,
    Plain,
    Json,
}

/// Keeps telemetry up; dropping it, as the last thing before the process ends, flushes what is left.
#[must_use = "telemetry ends when the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    provider: SdkTracerProvider,
    outlet: Option<Outlet>,
    meters: Option<SdkMeterProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let provider = self.provider.clone();
        let mut ends: Vec<flush::End> =
            vec![Box::new(move |limit| provider.shutdown_with_timeout(limit))];
        if let Some(meters) = self.meters.clone() {
            ends.push(Box::new(move |limit| meters.shutdown_with_timeout(limit)));
        }
        let mut ended = flush::within(FLUSH_MAX, ends).into_iter();
        let spans = ended.next().unwrap_or(Ok(()));
        let figures = ended.next().unwrap_or(Ok(()));
        let lost = self.outlet.as_ref().map_or(0, Outlet::lost);
        if spans.is_err() || figures.is_err() || lost > 0 {
            tracing::warn!(
                code = "telemetry.spans_lost",
                lost,
                spans = ?spans.err(),
                figures = ?figures.err(),
                "not all spans and figures reached the collector"
            );
        }
    }
}

/// Sets up logs and traces of this process under the name `service`, and sends panics to the log. Call it once, first. The
/// standard variables of OpenTelemetry decide whether spans and figures are exported.
pub fn init(service: &str, options: &Options) -> Result<Guard, Error> {
    let (writer, is_terminal) = match &options.sink {
        Sink::Stderr => (
            BoxMakeWriter::new(std::io::stderr),
            std::io::stderr().is_terminal(),
        ),
        Sink::File(path) => (BoxMakeWriter::new(Mutex::new(open(path)?)), false),
    };
    let look = match options.format {
        Format::Auto if !is_terminal => Look::Json,
        Format::Json => Look::Json,
        Format::Auto | Format::Text if is_terminal && std::env::var_os("NO_COLOR").is_none() => {
            Look::Coloured
        }
        Format::Auto | Format::Text => Look::Plain,
    };
    let plan = otlp::plan(&|name| std::env::var(name).ok())?;
    let resource = export::resource(service);
    let outlet = export::spans(&plan, &resource)?;
    let meters = export::figures(&plan, resource.clone())?;
    let mut provider = SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(plan.sampler.clone());
    if let Some(outlet) = &outlet {
        provider = provider.with_span_processor(outlet.clone());
    }
    let provider = provider.build();
    let traces = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("teamster"))
        .with_context_activation(false)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        // Apart from the lines' filter: a quiet log must not cut the trace that crosses this process.
        .with_filter(
            Targets::new()
                .with_target("teamster", LevelFilter::INFO)
                .with_target(trace::LINES, LevelFilter::OFF),
        );
    tracing_subscriber::registry()
        .with(lines(service, look, writer).with_filter(filter(options)?))
        .with(traces)
        .try_init()
        .map_err(Error::AlreadySet)?;
    std::panic::set_hook(Box::new(log_panic));
    trace::install(plan.sampler);
    if let Some(outlet) = &outlet {
        span::install(outlet.clone());
    }
    if let Some(meters) = &meters {
        metric::install(meters);
    }
    Ok(Guard {
        provider,
        outlet,
        meters,
    })
}

fn lines(
    service: &str,
    look: Look,
    writer: BoxMakeWriter,
) -> Box<dyn Layer<Registry> + Send + Sync> {
    // A full disk or a closed terminal must not end the process: a line that cannot be written is lost.
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .log_internal_errors(false);
    match look {
        Look::Coloured => layer.with_ansi(true).compact().boxed(),
        Look::Plain => layer.with_ansi(false).compact().boxed(),
        Look::Json => layer
            .fmt_fields(JsonFields::new())
            .event_format(JsonLine {
                service: service.to_owned(),
            })
            .boxed(),
    }
}

fn filter(options: &Options) -> Result<EnvFilter, Error> {
    let filter = options
        .filter
        .clone()
        .or_else(|| std::env::var(FILTER_VARIABLE).ok())
        .filter(|filter| !filter.trim().is_empty())
        .unwrap_or_else(|| FILTER_DEFAULT.to_owned());
    EnvFilter::try_new(&filter).map_err(|source| Error::Filter { filter, source })
}

fn open(path: &PathBuf) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|source| Error::Open {
        path: path.clone(),
        source,
    })
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    tracing::error!(
        target: "teamster::panic",
        place = place.as_deref().unwrap_or("unknown"),
        panic = panic.payload_as_str().unwrap_or("no text"),
        "panicked"
    );
}
