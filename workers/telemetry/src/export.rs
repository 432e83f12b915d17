//! Builds what exports spans and figures to a collector, by OTLP over HTTP with protobuf.

use std::sync::Arc;

use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{
    MetricExporter, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    trace::{IdGenerator as _, RandomIdGenerator, SpanExporter as _},
};

use crate::{
    Error, Redacted,
    otlp::{Plan, Target},
    outlet::{Gather, Outlet},
};

/// Who sends: the standard variables first, then what the process calls itself.
pub(crate) fn resource(service: &str) -> Resource {
    let found = Resource::builder().build();
    let has = |name: &'static str| {
        found
            .get(&Key::from_static_str(name))
            .is_some_and(|value| !value.as_str().starts_with("unknown_service"))
    };
    let mut builder = Resource::builder();
    if !has("service.name") {
        builder = builder.with_service_name(service.to_owned());
    }
    if !has("service.version") {
        builder =
            builder.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    }
    if !has("service.instance.id") {
        let id = RandomIdGenerator::default().new_trace_id().to_string();
        builder = builder.with_attribute(KeyValue::new("service.instance.id", id));
    }
    builder.build()
}

/// The way of spans, if they go anywhere.
pub(crate) fn spans(plan: &Plan, resource: &Resource) -> Result<Option<Outlet>, Error> {
    let Some(target) = &plan.traces else {
        return Ok(None);
    };
    let fails = |source: Box<dyn std::error::Error + Send + Sync>| failed(target, source);
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_shared_http_client(client(target)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&target.endpoint)
        .with_headers(target.headers.clone())
        .with_timeout(target.timeout)
        .build()
        .map_err(|error| fails(error.into()))?;
    exporter.set_resource(resource);
    let gather = Gather {
        queue: plan.queue,
        batch: plan.batch,
        delay: plan.delay,
    };
    Outlet::start(exporter, Redacted(&target.endpoint).to_string(), gather)
        .map(Some)
        .map_err(|error| fails(error.into()))
}

/// The way of figures, if they go anywhere. They are sent every minute, or as `OTEL_METRIC_EXPORT_INTERVAL` says.
pub(crate) fn figures(plan: &Plan, resource: Resource) -> Result<Option<SdkMeterProvider>, Error> {
    let Some(target) = &plan.metrics else {
        return Ok(None);
    };
    let exporter = MetricExporter::builder()
        .with_http()
        .with_shared_http_client(client(target)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&target.endpoint)
        .with_headers(target.headers.clone())
        .with_timeout(target.timeout)
        .build()
        .map_err(|error| failed(target, error.into()))?;
    let provider = SdkMeterProvider::builder()
        .with_resource(resource)
        .with_reader(PeriodicReader::builder(exporter).build())
        .build();
    Ok(Some(provider))
}

/// A blocking client, made on a thread of its own because it must not be made on one of the runtime's. It follows no
/// redirect: the headers may hold a key.
fn client(target: &Target) -> Result<Arc<reqwest::blocking::Client>, Error> {
    // Refused if another part of the process was first, which installs the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let timeout = target.timeout;
    let made = std::thread::spawn(move || {
        reqwest::blocking::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
    })
    .join();
    match made {
        Ok(Ok(client)) => Ok(Arc::new(client)),
        Ok(Err(error)) => Err(failed(target, error.into())),
        Err(_) => Err(failed(target, "its HTTP client cannot be made".into())),
    }
}

fn failed(target: &Target, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Exporter {
        endpoint: Redacted(&target.endpoint).to_string(),
        source,
    }
}
